"""From settings to a running gateway, and down again: `tollhouse serve`.

The order keeps a failed start from leaving anything half-made:

    nothing is made      settings, prices, port, lock        -> one clear line, exit code 2
    the folder is ours   schema, first account, charges that a killed process left in the journal
    loading              the port answers inference and says how to call it; requests for the
                         control plane wait until it is imported and built
    recovering           requests for batches and interns wait until what a killed process left
                         of them is tidied
    serving              until SIGTERM, SIGINT or SIGHUP
    stopping             no new requests; running ones finish; charges are settled; exit code 0
                         a second SIGTERM or SIGINT: exit code 1 at once
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog
import uvloop

from tollhouse.api.inference_handler import InferenceHandler
from tollhouse.api.request_gate import takes_websocket
from tollhouse.api.server import GatewayServer, make_server
from tollhouse.apps.blobs import open_blobs
from tollhouse.apps.bootstrap import Bootstrapped, bootstrap_if_empty, is_empty
from tollhouse.apps.core import Core, bring_up_to_date, build_core
from tollhouse.apps.gateway import Components, Gateway, build_gateway, build_request_gates
from tollhouse.apps.process import allow_open_files, keep_memory_private
from tollhouse.apps.startup import Started, StartupResources, control_listener
from tollhouse.apps.vault import extra_authorities, open_keys
from tollhouse.audit.service import after_changes, entry_of_change
from tollhouse.audit.types import INSTALLATION, AuditAction, AuditEntry
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.failpoints import failpoint
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.server_log import LogFile, request_log
from tollhouse.settings.description import flat
from tollhouse.settings.sections import Settings
from tollhouse.storage.failures import RETRY_SECONDS, reason, unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncpg import Connection, Record

    from tollhouse.api.handover import ControlPassing, WorkerPassing
    from tollhouse.apps.control import ControlComponents
    from tollhouse.apps.processes.member import Member
    from tollhouse.settings.service_sections import BlobSettings
    from tollhouse.storage.blobs import Blobs
    from tollhouse.vault.key_encryption import KeyEncryption

FORCED = 1
_ALLOCATIONS_BEFORE_COLLECTION = 5_000
"""So many take 2 ms to walk. 50,000 took 15 to 80, in which nobody was served."""
_ENDING_SECONDS = 1.0
"""How long before the end of a shutdown the streams that still run get their legal end."""
_LOADING_SWITCH_SECONDS: Final = 0.0005
"""How soon a request gets the interpreter while a thread imports; 5 ms is Python's own."""
_log = structlog.get_logger(__name__)


def serve(
    settings: Settings, resources: StartupResources, announce: Callable[[Started], None]
) -> int:
    """Run the gateway until it is told to stop, and return the exit code.

    `announce` is called once it answers inference; what the control plane lacks then is loaded.

    Raises:
        StartError: It cannot start; nothing half-made is left behind.
    """
    most, path = settings.logging.file_bytes, resources.folder.server_log
    file = LogFile(path, most) if most else None
    configure_logging(settings.logging.level, settings.logging.format, file=file)
    _prepare_process(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, resources, announce))


def serve_member(settings: Settings, member: Member, link: socket.socket) -> int:
    """Run one of several processes until its supervisor tells it to stop; return the exit code.

    Raises:
        StartError: It cannot start.
    """
    configure_logging(settings.logging.level, "json")
    _prepare_process(settings)

    async def run() -> int:
        resources = member.resources(settings)
        await member.listen(link)

        def announce(started: Started) -> None:
            member.ready(started.first, started.example_model)

        return await _run(settings, resources, announce, member)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def _prepare_process(settings: Settings) -> None:
    allow_open_files()
    if not settings.server.core_dumps:
        keep_memory_private()


async def _run(
    settings: Settings,
    resources: StartupResources,
    announce: Callable[[Started], None],
    member: Member | None = None,
) -> int:
    request_log.gather(asyncio.get_running_loop())
    core = build_core(resources.url, settings, has_siblings=member is not None)
    gateway: Gateway | None = None
    presence: Connection[Record] | None = None
    first: Bootstrapped | None = None
    blobs: Blobs | None = None
    is_worker = member is not None and member.is_worker
    try:
        if not is_worker:
            await bring_up_to_date(core.database)
            if core.database.dialect == "postgresql":
                presence = await join_other_servers(core, settings.blobs)
            blobs = open_blobs(settings.blobs, resources.folder, core.ids)
        if core.is_shared:
            folder = None if member is None else resources.folder.notify
            core.database.hear_others(core.ids.uuid(), folder)
        keys = await open_keys(settings.vault, core, resources.folder)
        if not is_worker:
            first = await _first_start(core, settings)
        gateway = _build(settings, core, resources, keys, is_worker=is_worker)
        if not is_worker:
            await record_settings(settings, core)
            await record_opened_destinations(settings, core)
        for each in gateway.components:
            await each.start()
        gateway.recovery.begin()
        models = [model.id for model in resources.catalog.models]
        started = Started(resources.address, resources.folder, first, models[0] if models else None)
        server = _Server(settings, gateway, blobs, resources, member)
        await server.run(lambda: announce(started))
    finally:
        request_log.close()
        if presence is not None:
            await presence.close()
        await (core.database if gateway is None else gateway).close()
    return 0


def _build(
    settings: Settings,
    core: Core,
    resources: StartupResources,
    keys: KeyEncryption,
    *,
    is_worker: bool,
) -> Gateway:
    catalog, folder = resources.catalog, resources.folder
    if is_worker:  # of the server's processes one checks the books, and one has the way out
        accounting = settings.accounting.model_copy(update={"verify_seconds": 0.0})
        settings = settings.model_copy(update={"accounting": accounting})
        return build_gateway(settings, core, catalog, folder, keys)
    parts = urlsplit(resources.address)
    address = parts.hostname or "", parts.port or 0
    return build_gateway(settings, core, catalog, folder, keys, address=address)


async def join_other_servers(core: Core, files: BlobSettings) -> Connection[Record]:
    """Say to other servers of the database that this one is there, and log if there are any.

    Raises:
        StartError: Some have their files elsewhere: each would take up batches of the other, whose
            requests and results it cannot read.
    """
    # Imported here: who has an SQLite file goes without the driver.
    from tollhouse.storage.postgresql import join_servers  # noqa: PLC0415

    parts = (files.endpoint, files.bucket, (files.prefix or "").strip("/"))
    place = None if files.bucket is None else "\n".join(part or "" for part in parts)
    presence, others, elsewhere = await join_servers(core.database.url, place)
    if elsewhere:
        await presence.close()
        raise StartError(
            f"another server runs on this database ({elsewhere} in all) and keeps files of batches "
            "elsewhere: neither could read those of the other. Stop it, or give both the same "
            "store with blobs.bucket; one whose machine failed is forgotten within a minute"
        )
    if others:
        _log.info("database_shared", others=others)
    return presence


async def _first_start(core: Core, settings: Settings) -> Bootstrapped | None:
    async with core.database.reading() as read:
        if not await is_empty(read, core.identity):
            return None
    async with core.database.writing() as write:
        return await bootstrap_if_empty(write, core.identity, core.accounting, settings)


@dataclass(slots=True, repr=False)
class _Server:
    """A gateway that listens, from its first request to its last."""

    settings: Settings
    gateway: Gateway
    blobs: Blobs | None
    """None in a worker, which has no control plane."""
    resources: StartupResources
    member: Member | None
    """None where this process is the whole server."""
    control: ControlComponents | None = None
    """None until they are loaded."""
    passing: WorkerPassing | ControlPassing | None = None
    is_delayed: bool = False
    """Whether it was said that the recovery has to wait."""

    async def run(self, announce: Callable[[], None]) -> None:
        """Serve until a signal stops it.

        Raises:
            StartError: The control plane cannot be loaded, or the store of blobs not be used;
                requests that ran then have been answered.
        """
        settings, member = self.settings.server, self.member
        stop = _stop_on_signals() if member is None else member.stop
        served = partial(
            make_server,
            limit_per_address=settings.max_connections_per_address,
            shutdown_seconds=settings.shutdown_seconds,
            min_body_rate=settings.min_body_bytes_per_second,
        )
        public, local = build_request_gates(self.settings, self.gateway)
        by_callbacks = settings.inference_driver == "callbacks"
        handler = InferenceHandler(public) if by_callbacks else None
        server = served(public, handler=handler, takes_websocket=takes_websocket)
        if member is not None:
            self.passing = member.passing(server, public, self.settings)
            member.metrics = self.gateway.metrics
            if not member.is_worker:
                siblings = self.gateway.readiness.siblings
                siblings.count_workers = member.count_workers
                siblings.report = member.report_of_others
        own, others = self.resources.listeners[:1], self.resources.listeners[1:]
        commands = self.resources.local
        if member is None:
            commands = control_listener(self.gateway.folder.control_socket, socket.SOCK_STREAM)
        servers, running = [server], [asyncio.create_task(server.serve(own, others))]
        if commands is not None:
            servers.append(served(local))
            running.append(asyncio.create_task(servers[-1].serve([commands])))
        try:
            for each in servers:
                await each.listening.wait()
            announce()
            early = asyncio.create_task(self._refuse_early(stop))
            try:
                if self.blobs is not None:
                    self.control = await self._load_control(self.blobs)
                    await self._recover(self.control, stop)
                _calm_the_collector()
                await stop.wait()
            finally:
                early.cancel()
                _log.info("stopping", seconds=settings.shutdown_seconds)
                await self._stop(servers, running)
        finally:
            if member is None:
                with suppress(FileNotFoundError):
                    self.gateway.folder.control_socket.unlink()

    async def _refuse_early(self, stop: asyncio.Event) -> None:
        """Take no new requests once a signal comes while the control plane is still loading.

        Later, agents still call the port while their interns end.
        """
        await stop.wait()
        if self.control is None and not self._hands_over:
            self.gateway.readiness.stopping = True
            self.gateway.inference.pipeline.refuse_new()

    async def _load_control(self, blobs: Blobs) -> ControlComponents:
        """Import and build the control plane beside the requests that run, and let its own pass.

        Raises:
            StartError: It cannot be imported.
        """
        gateway, clock = self.gateway, self.gateway.core.clock
        began, usual = clock.monotonic(), sys.getswitchinterval()
        sys.setswitchinterval(_LOADING_SWITCH_SECONDS)
        try:
            await failpoint("serve.control.before")
            await asyncio.to_thread(_import_control)
            # Imported above, in a thread; see there.
            from tollhouse.apps import control  # noqa: PLC0415

            components = control.build_control(self.settings, gateway, blobs)
            plane = await asyncio.to_thread(
                control.build_control_plane, self.settings, gateway, components
            )
        finally:
            sys.setswitchinterval(usual)
        gateway.control.open(plane)
        _log.info("control_plane_loaded", seconds=round(clock.monotonic() - began, 3))
        return components

    async def _recover(self, control: ControlComponents, stop: asyncio.Event) -> None:
        """Recover batches and interns, then let their requests pass.

        Where the database is locked or away that is tried again until it succeeds or `stop` is set.

        Raises:
            StartError: The store of blobs cannot be used.
        """
        clock, took = self.gateway.core.clock, dict[str, float]()
        for each, name in ((control.batches, "batches"), (control.interns, "interns")):
            began = clock.monotonic()
            while not await self._started(each):
                await wait_for_event(stop, RETRY_SECONDS)
                if stop.is_set():
                    return
            took[f"{name}_seconds"] = round(clock.monotonic() - began, 3)
        _log.info("recovered", **took)
        self.gateway.recovery.finish()

    async def _started(self, each: Components) -> bool:
        try:
            await each.start()
        except Exception as error:
            if unavailable(error) is None:
                raise
            if not self.is_delayed:
                _log.warning(
                    "recovery_delayed",
                    error=reason(error),
                    advice="batches and interns wait until the database can be written",
                )
            self.is_delayed = True
            return False
        return True

    @property
    def _hands_over(self) -> bool:
        """Whether other processes go on."""
        return self.member is not None and self.member.hand_over

    async def _stop(self, servers: list[GatewayServer], running: list[asyncio.Task[None]]) -> None:
        gateway, seconds = self.gateway, self.settings.server.shutdown_seconds
        gateway.readiness.stopping = not self._hands_over
        control = self.control
        # Agents and programs behind the egress proxy call the port: it answers until they have
        # ended.
        interns = [] if control is None else [control.interns]
        await gateway.stop(*interns, gateway.vault, seconds=seconds)
        if self.member is not None and not self.member.is_worker:
            await self.member.quiet()
        if self.passing is not None:
            await self.passing.leave(hand_over=self._hands_over)
        for server in servers:
            server.stop(hand_over=self._hands_over)
        for_requests = max(0.0, seconds - _ENDING_SECONDS)
        if self._hands_over:
            # A request may still begin whose head has come in part.
            _, unfinished = await asyncio.wait(running, timeout=for_requests)
            for_requests = 0.0 if unfinished else seconds
        else:
            gateway.inference.pipeline.refuse_new()
        batches = [] if control is None else [control.batches]
        await gateway.stop(*batches, gateway.inference, seconds=for_requests)
        await asyncio.gather(*running)
        if self.passing is not None:
            await self.passing.close()
        if self.member is not None:
            self.member.report()


def _calm_the_collector() -> None:
    """Leave what lives as long as the process out of garbage collection, and collect less often.

    A request makes hundreds of short-lived objects and hardly a cycle; walking modules and tables
    every 700 of them took 6 % of its CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BEFORE_COLLECTION, 20, 20)
    gc.enable()


def _import_control() -> None:
    """Import the control plane; takes as long as all of a start before it.

    Raises:
        StartError: A library is missing or damaged.
    """
    try:
        import_module("tollhouse.apps.control")
    except Exception as error:  # an edge: a damaged library raises anything
        raise StartError(
            f"the control plane cannot be loaded ({type(error).__name__}: {error}): "
            "install Tollhouse and its libraries again"
        ) from error


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            # The operator insists. Charges that were acknowledged are in the journal already.
            sys.stderr.flush()
            os._exit(FORCED)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    # A terminal that closes may send it more than once: nobody insists by that.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
        loop.add_signal_handler(signal.SIGHUP, stop.set)
    return stop


_OPERATOR: Final = "operator"


async def record_settings(settings: Settings, core: Core) -> None:
    """Record how the settings differ from those of the last start; at the first, from the defaults.

    Secrets are masked, so a change of a secret alone is not recorded.
    """
    async with core.database.reading() as read:
        earlier = await core.audit.all_of(read, INSTALLATION, AuditAction.SETTINGS_CHANGED)
    defaults = flat(Settings(data_dir=settings.data_dir))
    before = after_changes(defaults, [entry.changes for entry in earlier])
    entry = entry_of_change(
        AuditAction.SETTINGS_CHANGED, _OPERATOR, "settings", before, flat(settings)
    )
    if not entry.changes:
        return
    async with core.database.writing() as write:
        await core.audit.record(write, INSTALLATION, [entry])


async def record_opened_destinations(settings: Settings, core: Core) -> None:
    """Record which private networks and certificate authorities the settings open, if that changed.

    Raises:
        StartError: The file of certificates cannot be used.
    """
    authorities = extra_authorities(settings)
    entry = AuditEntry(
        AuditAction.OUTBOUND_OPENED,
        _OPERATOR,
        name=None if authorities is None else f"sha256:{sha256(authorities.encode()).hexdigest()}",
        hosts=tuple(str(each) for each in settings.outbound.allow_networks),
    )
    async with core.database.reading() as read:
        last = await core.audit.last(read, INSTALLATION, AuditAction.OUTBOUND_OPENED)
    if last == entry or (last is None and not entry.hosts and entry.name is None):
        return
    async with core.database.writing() as write:
        await core.audit.record(write, INSTALLATION, [entry])
