"""Interns, put together: the service before them, and the reconciler that runs them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import structlog

from tollhouse.identity.intern_keys import InternKeys
from tollhouse.interns.archives import Archives
from tollhouse.interns.chat.pace import ChatPace
from tollhouse.interns.chat.service import ChatService
from tollhouse.interns.context import Context, Rules
from tollhouse.interns.doors import Doors
from tollhouse.interns.journeys import Journeys, Paces, Tools
from tollhouse.interns.logs import Logs
from tollhouse.interns.machine import machine_name
from tollhouse.interns.news import LocalNews
from tollhouse.interns.reconciler import Reconciler
from tollhouse.interns.runtimes.base import SandboxLimits
from tollhouse.interns.runtimes.registry import build_runtime
from tollhouse.interns.sandboxes import Sandboxes
from tollhouse.interns.service import InternService, Nobody, NoRooms
from tollhouse.interns.workspaces import Workspaces

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.apps.egressing import Egressing
    from tollhouse.apps.vaulting import Vaulting
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.hosted import InternSettings
    from tollhouse.storage.blobs.port import Blobs
    from tollhouse.storage.data_folder import DataFolder

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Interning:
    """Everything of interns that runs or answers."""

    service: InternService
    chats: ChatService
    doors: Doors
    """To the daemons that run here."""
    crew: Crew | None
    """Runs sandboxes; None where it serves a single command."""

    async def stop(self) -> None:
        """Take down what runs here; may be asked for twice."""
        if self.crew is not None:
            await self.crew.stop()


@dataclass(frozen=True, slots=True)
class Crew:
    """What runs interns."""

    reconciler: Reconciler
    seconds: float
    tools: Tools
    metrics: Metrics

    async def begin_alone(self) -> None:
        """Remove what a killed server has left, and say what keeps sandboxes in their limits."""
        await self.reconciler.begin_alone()
        runtime, limits = self.tools.runtime, self.tools.limits
        enforced = await asyncio.to_thread(runtime.limits_enforced, limits)
        named = [each.name for each in fields(limits)]
        for name in named:
            self.metrics.limited(name, enforced=name in enforced)
        missing = [name for name in named if name not in enforced]
        _log.info("intern_limits", enforced=sorted(enforced), not_enforced=missing)
        sandboxes = self.tools.sandboxes
        self.metrics.interns_running.set_function(sandboxes.count)
        self.metrics.interns_disk_full.set_function(sandboxes.count_full)

    async def stop(self) -> None:
        """Take down what it runs."""
        await self.reconciler.stop(self.seconds)
        await self.tools.doors.stop()


def build_interning(  # noqa: PLR0913, PLR0917 - each is a part of the gateway
    settings: InternSettings,
    core: Core,
    vaulting: Vaulting,
    egressing: Egressing | None,
    folder: DataFolder,
    blobs: Blobs,
    metrics: Metrics,
) -> Interning:
    """Return interns on the gateway's own services; nothing runs yet.

    Args:
        settings: Limits and paces.
        core: The database and the services above it.
        vaulting: Vaults, and the record.
        egressing: The ways out; None where it serves a single command.
        folder: The data folder.
        blobs: Where archives of workspaces are stored.
        metrics: What operators see of sandboxes and chats.
    """
    context = Context(
        database=core.database,
        identity=core.identity,
        keys=InternKeys(core.clock, core.ids, core.authenticator),
        vaults=vaulting.service,
        audit=vaulting.audit,
        news=LocalNews(),
        clock=core.clock,
        ids=core.ids,
        rules=Rules(settings.max_per_creator, settings.public_url),
    )
    logs = Logs(folder.interns / "logs", core.clock)
    pace = ChatPace(settings.chats_per_minute)
    doors = Doors()
    if egressing is None:
        service = InternService(context, Nobody(core.clock), logs)
        chats = ChatService(context, service, NoRooms(), pace, metrics)
        return Interning(service, chats, doors, None)
    tools = Tools(
        runtime=build_runtime(settings.runtime, folder.path, core.clock),
        limits=SandboxLimits(
            settings.memory_bytes,
            settings.processes,
            settings.cpu_percent / 100,
            settings.disk_bytes,
            settings.open_files,
            settings.files,
        ),
        egress=egressing.egress,
        doors=doors,
        sandboxes=Sandboxes(folder.interns / "run", egressing.egress, doors),
        workspaces=Workspaces(
            folder.interns,
            Archives(blobs, core.ids, core.clock),
            machine_name(folder.interns, core.ids),
            settings.first_user,
        ),
        logs=logs,
        paces=Paces(
            settings.boot_seconds,
            settings.suspend_seconds,
            settings.destroy_seconds,
            settings.stop_seconds,
        ),
    )
    reconciler = Reconciler(
        context,
        tools,
        Journeys(context, tools, boots_at_once=settings.boots_at_once),
        lease_seconds=settings.lease_seconds,
        away_seconds=settings.away_seconds,
        round_seconds=settings.round_seconds,
    )
    crew = Crew(reconciler, settings.stop_seconds, tools, metrics)
    service = InternService(context, reconciler, logs)
    chats = ChatService(context, service, tools.sandboxes, pace, metrics)
    return Interning(service, chats, doors, crew)
