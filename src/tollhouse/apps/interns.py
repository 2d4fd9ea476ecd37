"""Interns: the services for their endpoints, and the reconciler that runs them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import structlog

from tollhouse.identity.access import InternKeys
from tollhouse.interns.actions import ActionTimeouts, ReconcilerActions, ReconcilerDependencies
from tollhouse.interns.chat.channels.slack_server import SlackServer
from tollhouse.interns.chat.channels.supervisor import Channels
from tollhouse.interns.chat.invocations import Invocations
from tollhouse.interns.chat.service import ChatRateLimiter, ChatService
from tollhouse.interns.context import InternContext, Notifications, Rules
from tollhouse.interns.logs import InternLogs
from tollhouse.interns.reconciler import Reconciler
from tollhouse.interns.runtimes.base import SandboxLimits
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.interns.runtimes.process import ProcessRuntime
from tollhouse.interns.sandboxes import Sandboxes
from tollhouse.interns.service import InternService, NoReconciler
from tollhouse.interns.workspaces.archive_store import ArchiveStore
from tollhouse.interns.workspaces.folders import Workspaces, machine_name
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.interns.sandboxes import PortForwarder
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.service_sections import InternSettings
    from tollhouse.storage.blobs import Blobs
    from tollhouse.storage.data_folder import DataFolder
    from tollhouse.vault.egress.service import EgressService
    from tollhouse.vault.service import VaultService

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class InternComponents:
    """What creates, runs and talks to interns."""

    service: InternService
    chats: ChatService
    invocations: Invocations
    channels: Channels
    port_forwarder: PortForwarder
    """To the daemons that run here."""
    metrics: Metrics
    reconciler: Reconciler | None = None
    """Runs sandboxes; None where a single command is served."""
    tools: ReconcilerDependencies | None = None
    """What the reconciler uses; None as above."""

    async def start(self) -> None:
        """Remove what a killed server left, then run interns; report which limits hold."""
        if self.reconciler is None or self.tools is None:
            return
        await self.reconciler.clean_up()
        runtime, limits, sandboxes = self.tools.runtime, self.tools.limits, self.tools.sandboxes
        enforced = await asyncio.to_thread(runtime.limits_enforced, limits)
        named = [each.name for each in fields(limits)]
        for name in named:
            self.metrics.set_limit(name, enforced=name in enforced)
        missing = [name for name in named if name not in enforced]
        _log.info("intern_limits", enforced=sorted(enforced), not_enforced=missing)
        self.metrics.interns_running.set_function(sandboxes.count)
        self.metrics.interns_disk_full.set_function(sandboxes.count_full)
        self.reconciler.start()
        self.channels.start()

    async def stop(self, seconds: float) -> None:
        """Stop what runs here; programs in sandboxes have the time that the settings give them."""
        del seconds
        await self.channels.stop()
        await self.invocations.stop()
        if self.reconciler is not None and self.tools is not None:
            await self.reconciler.stop(self.tools.timeouts.stop_seconds)
            await self.port_forwarder.stop()


def build_interns(  # noqa: PLR0913, PLR0917 - each is a part of the gateway
    settings: InternSettings,
    core: Core,
    vault: VaultService,
    egress: EgressService | None,
    folder: DataFolder,
    blobs: Blobs,
    metrics: Metrics,
    port_forwarder: PortForwarder,
) -> InternComponents:
    """Return what runs interns; it runs none without an egress proxy, as for a single command."""
    context = InternContext(
        database=core.database,
        identity=core.identity,
        keys=InternKeys(core.clock, core.ids),
        vaults=vault,
        audit=core.audit,
        notifications=Notifications(),
        clock=core.clock,
        ids=core.ids,
        rules=Rules(settings.max_per_creator, settings.public_url),
    )
    core.database.notifications.subscribe(Topic.INTERN, context.notifications.notify)
    logs = InternLogs(folder.interns / "logs", core.clock)
    rate_limiter = ChatRateLimiter(settings.chats_per_minute)
    if egress is None:
        service = InternService(context, NoReconciler(core.clock), logs)
        chats = ChatService(context, service, None, rate_limiter, metrics)
        runs, channels = _runs(settings, chats, vault, None)
        return InternComponents(service, chats, runs, channels, port_forwarder, metrics)
    tools = _dependencies(settings, core, egress, port_forwarder, folder, blobs, logs)
    reconciler = Reconciler(
        context,
        tools,
        ReconcilerActions(context, tools, boots_at_once=settings.boots_at_once),
        lease_seconds=settings.lease_seconds,
        away_seconds=settings.away_seconds,
        round_seconds=settings.round_seconds,
    )
    service = InternService(context, reconciler, logs)
    chats = ChatService(context, service, tools.sandboxes, rate_limiter, metrics)
    runs, channels = _runs(settings, chats, vault, tools.workspaces.machine)
    return InternComponents(
        service, chats, runs, channels, port_forwarder, metrics, reconciler, tools
    )


def _runs(
    settings: InternSettings, chats: ChatService, vault: VaultService, machine: str | None
) -> tuple[Invocations, Channels]:
    """Return what begins runs that no request watches."""
    seconds = settings.invoke_seconds
    channels = Channels(chats, machine, SlackServer(settings.slack_url), seconds=seconds)
    return Invocations(chats, vault, seconds=seconds), channels


def _dependencies(  # noqa: PLR0913, PLR0917 - each is a part of the gateway
    settings: InternSettings,
    core: Core,
    egress: EgressService,
    port_forwarder: PortForwarder,
    folder: DataFolder,
    blobs: Blobs,
    logs: InternLogs,
) -> ReconcilerDependencies:
    is_isolated = settings.runtime == BubblewrapRuntime.name
    return ReconcilerDependencies(
        runtime=BubblewrapRuntime(folder.path, core.clock)
        if is_isolated
        else ProcessRuntime(core.clock),
        limits=SandboxLimits(
            settings.memory_bytes,
            settings.processes,
            settings.cpu_percent / 100,
            settings.disk_bytes,
            settings.open_files,
            settings.files,
        ),
        egress=egress,
        port_forwarder=port_forwarder,
        sandboxes=Sandboxes(folder.interns / "run", egress, port_forwarder),
        workspaces=Workspaces(
            folder.interns,
            ArchiveStore(blobs, core.ids, core.clock),
            machine_name(folder.interns, core.ids),
            settings.first_user,
        ),
        logs=logs,
        timeouts=ActionTimeouts(
            settings.boot_seconds,
            settings.suspend_seconds,
            settings.destroy_seconds,
            settings.stop_seconds,
        ),
    )
