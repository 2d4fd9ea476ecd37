"""From settings to a running gateway, and down again: `tollhouse serve`.

The order keeps a failed start from leaving anything half-made:

    nothing is made      settings, prices, port, lock        -> one clear line, exit code 2
    the folder is ours   schema, first account, charges that a killed process left in the journal
    recovering           the port answers; requests for batches and interns wait until what a
                         killed process left of them is tidied
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
from typing import TYPE_CHECKING

import structlog
import uvloop

from tollhouse.api.intern_daemons import takes_websocket
from tollhouse.api.server import GatewayServer, make_server
from tollhouse.apps.batching import ready_blobs
from tollhouse.apps.bootstrap import OPERATOR, Bootstrapped, bootstrap_if_empty, is_empty
from tollhouse.apps.core import Core, bring_up_to_date, build_core
from tollhouse.apps.egressing import record_openings
from tollhouse.apps.gateway import Gateway, build_gateway
from tollhouse.apps.process import allow_open_files, keep_memory_private
from tollhouse.apps.settings_record import record_settings
from tollhouse.apps.vaulting import open_keys
from tollhouse.kernel.start import StartError
from tollhouse.observability.log_file import LogFile
from tollhouse.observability.logging import configure_logging
from tollhouse.storage.data_folder import DataFolder
from tollhouse.storage.postgresql import join_servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncpg import Connection, Record

    from tollhouse.apps.ground import Ground
    from tollhouse.settings.sections import Settings

FORCED = 1
_ALLOCATIONS_BEFORE_COLLECTION = 50_000
_ENDING_SECONDS = 1.0
"""How long before the end of a shutdown the streams that still run get their legal end."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Started:
    """What a person wants to know of a gateway that has just begun to serve."""

    address: str
    folder: DataFolder
    first: Bootstrapped | None
    """The keys of a first start; None where the folder had an account already."""
    example_model: str | None


def serve(settings: Settings, ground: Ground, announce: Callable[[Started], None]) -> int:
    """Run the gateway until it is told to stop.

    Args:
        settings: What to run.
        ground: What this process holds for it.
        announce: Called once it serves.

    Returns:
        The exit code.

    Raises:
        StartError: It cannot start; nothing half-made is left behind.
    """
    most, path = settings.logging.file_bytes, ground.folder.server_log
    file = LogFile(path, most) if most else None
    configure_logging(settings.logging.level, settings.logging.format, file=file)
    allow_open_files()
    if not settings.server.core_dumps:
        keep_memory_private()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings, ground, announce))


async def _run(settings: Settings, ground: Ground, announce: Callable[[Started], None]) -> int:
    catalog, folder, listener = ground.catalog, ground.folder, ground.listener
    core = build_core(ground.url, settings)
    gateway: Gateway | None = None
    presence: Connection[Record] | None = None
    try:
        await ground.schema_made()
        await bring_up_to_date(core.database)
        keys = await open_keys(settings.vault, core, folder)
        first = await _first_start(core, settings)
        address = listener.getsockname()[:2]
        gateway = build_gateway(settings, core, catalog, folder, keys, address=address)
        await record_settings(settings, core)
        await record_openings(settings, core, gateway.vaulting)
        if gateway.egressing is not None:
            await gateway.egressing.programs.sweep(OPERATOR)
        await _recover_charges(gateway)
        gateway.recovery.begin()
        if core.database.dialect == "postgresql":
            presence = await join_other_servers(core)
        models = [model.id for model in catalog.models]
        started = Started(ground.address, folder, first, models[0] if models else None)
        await _serve_until_stopped(settings, gateway, listener, lambda: announce(started))
    finally:
        if presence is not None:
            await presence.close()
        await (core.database if gateway is None else gateway).close()
    return 0


async def join_other_servers(core: Core) -> Connection[Record]:
    """Say to other servers of the database that this one is there, and warn if there are any."""
    presence, others = await join_servers(core.database.url)
    if others:
        _log.warning(
            "database_shared",
            others=others,
            advice="each server counts limits, budgets and requests under way for itself, so that "
            "together they may let a key or a balance end lower than it should; charges stay "
            "exact. Run one server on a database.",
        )
    return presence


async def _recover_charges(gateway: Gateway) -> None:
    """Book what a killed process left in its journal: before that, balances are too high."""
    recovered = await gateway.settler.recover()
    if recovered.charges or recovered.damaged:
        _log.warning("charges_recovered", charges=recovered.charges, damaged=recovered.damaged)


async def _begin_work(gateway: Gateway, announce: Callable[[], None]) -> None:
    """Tidy what a killed process left of batches and interns, then begin to work on them.

    Raises:
        StartError: The store of blobs cannot be used.
    """
    clock, crew = gateway.core.clock, gateway.interning.crew
    began = clock.monotonic()
    await ready_blobs(gateway.batching.blobs)
    if gateway.core.database.dialect == "sqlite":
        await gateway.batching.sweeper.begin_alone()
    batches = clock.monotonic()
    if crew is not None:
        await crew.begin_alone()
    interns = clock.monotonic()
    _log.info(
        "recovered",
        batches_seconds=round(batches - began, 3),
        interns_seconds=round(interns - batches, 3),
    )
    gateway.recovery.finish()
    announce()
    gateway.invariants.start()
    gateway.batching.engine.start()
    if crew is not None:
        crew.reconciler.start()


async def _first_start(core: Core, settings: Settings) -> Bootstrapped | None:
    async with core.database.reading() as read:
        if not await is_empty(read, core.identity):
            return None
    async with core.database.writing() as write:
        return await bootstrap_if_empty(write, core.identity, core.accounting, settings)


async def _serve_until_stopped(
    settings: Settings, gateway: Gateway, listener: socket.socket, announce: Callable[[], None]
) -> None:
    seconds = settings.server.shutdown_seconds
    folder = DataFolder(settings.data_dir)
    stop = _stop_on_signals()
    control = _control_listener(folder)
    served = partial(
        make_server,
        limit_per_address=settings.server.max_connections_per_address,
        shutdown_seconds=seconds,
        min_body_rate=settings.server.min_body_bytes_per_second,
    )
    servers = [
        served(gateway.public, takes_websocket=takes_websocket),
        served(gateway.local),
    ]
    running = [
        asyncio.create_task(server.serve(sockets=[each]))
        for server, each in zip(servers, (listener, control), strict=True)
    ]
    try:
        for server in servers:
            await server.listening.wait()
        _calm_the_collector()
        await _begin_work(gateway, announce)
        await stop.wait()
        _log.info("stopping", seconds=seconds)
        await _stop(gateway, servers, running, seconds)
    finally:
        with suppress(FileNotFoundError):
            folder.control_socket.unlink()


def _calm_the_collector() -> None:
    """Leave what lives as long as the process out of garbage collection, and collect less often.

    A request makes hundreds of short-lived objects and hardly a cycle; walking modules and tables
    every 700 of them took 6 % of its CPU time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_BEFORE_COLLECTION, 20, 20)
    gc.enable()


async def _stop(
    gateway: Gateway,
    servers: list[GatewayServer],
    running: list[asyncio.Task[None]],
    seconds: float,
) -> None:
    gateway.readiness.stopping = True
    await gateway.interning.stop()
    if gateway.egressing is not None:
        await gateway.egressing.stop()
    for server in servers:
        server.should_exit = True
    for_requests = max(0.0, seconds - _ENDING_SECONDS)
    await asyncio.gather(
        gateway.pipeline.drain(for_requests),
        # Items that do not end in time are run again.
        gateway.batching.engine.stop(for_requests / 2),
    )
    await gateway.batching.asker.pipeline.drain(0)
    await asyncio.gather(*running)


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


def _control_listener(folder: DataFolder) -> socket.socket:
    path = folder.control_socket
    with suppress(FileNotFoundError):
        # The lock is ours: whoever left it there is gone.
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        message = (
            f"the control socket {path} cannot be made ({error.strerror or error}): "
            "choose a data folder with a shorter path, on a local disk"
        )
        raise StartError(message) from None
    finally:
        os.umask(mask)
    listener.setblocking(False)  # noqa: FBT003 - its only form
    return listener
