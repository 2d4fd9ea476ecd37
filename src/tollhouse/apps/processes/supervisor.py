"""The supervisor of a server with several processes: it starts them, and starts them again.

    supervisor      the data folder's lock, the sockets of the port, the log; no application
     ├─ control     everything but the public port: the rest of the API, batches, interns, egress
     ├─ worker 1    requests to models
     └─ worker 2    ...

The sockets are made here and stay open, so that no connection is lost that waits for a process to
come. One that ends by itself is started again, at once at first, then after longer and longer
pauses. SIGHUP replaces every process by a new one, which reads the settings anew: worker by worker,
each once its successor answers, then control. SIGTERM or SIGINT end all; a second one at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Final

import structlog
from msgspec.structs import replace

from tollhouse.api.address_table import clear_row, make_table
from tollhouse.apps.bootstrap import Bootstrapped
from tollhouse.apps.process import keep_memory_private
from tollhouse.apps.processes.logs import LogSink
from tollhouse.apps.processes.messages import (
    Begin,
    Finish,
    Gather,
    Gathered,
    Report,
    Stop,
    fixed_part,
)
from tollhouse.apps.processes.process import Process
from tollhouse.apps.startup import Started, control_listener
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import StartError
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.merging import counters, merge
from tollhouse.observability.server_log import LogFile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from tollhouse.apps.processes.messages import Quiet, Ready
    from tollhouse.apps.startup import StartupResources
    from tollhouse.observability.merging import Family
    from tollhouse.settings.sections import Settings

FORCED: Final = 1
_START_SECONDS: Final = 120.0
"""How long a process may take until it answers."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_CALM_SECONDS: Final = 30.0
"""Who has lived for so long is started again after the shortest pause."""
_COLLECT_SECONDS: Final = 5.0
_REPORT_SECONDS: Final = 1.0
"""How long it is waited for a process that was asked what it has counted."""
_END_SECONDS: Final = 20.0
"""How much longer than a shutdown a process may take to end."""
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Place:
    """A place that always has a process."""

    begin: Begin
    process: Process | None = None
    is_first: bool = True
    """Whether none has ended in it yet."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the process is replaced."""


def supervise(
    settings: Settings,
    resources: StartupResources,
    options: Mapping[str, str | None],
    announce: Callable[[Started], None],
) -> int:
    """Run a server with several processes until it is told to stop, and return the exit code.

    `options` are those of the command line, from which each process reads the settings; `announce`
    is called once all answer.

    Raises:
        StartError: It cannot start; nothing half-made is left behind.
    """
    if sys.platform != "linux":
        raise StartError("server.workers: more than one needs Linux")
    most = settings.logging.file_bytes
    file = LogFile(resources.folder.server_log, most) if most else None
    configure_logging(settings.logging.level, settings.logging.format, file=file)
    sink = LogSink(settings.logging.format, file)
    folder = resources.folder
    paths = (folder.control_socket, folder.workers_socket)
    if not settings.server.core_dumps:
        keep_memory_private()
    with control_listener(paths[0], socket.SOCK_STREAM) as local:
        try:
            with control_listener(paths[1], socket.SOCK_SEQPACKET) as links:
                supervisor = Supervisor(settings, resources, dict(options), sink, local, links)
                return asyncio.run(supervisor.run(announce))
        finally:
            for path in paths:
                with suppress(FileNotFoundError):
                    path.unlink()


class Supervisor:
    """Keeps the processes of a server; see the module."""

    def __init__(  # noqa: PLR0913, PLR0917 - made once
        self,
        settings: Settings,
        resources: StartupResources,
        options: dict[str, str | None],
        sink: LogSink,
        local: socket.socket,
        links: socket.socket,
    ) -> None:
        self._seconds = settings.server.shutdown_seconds
        self._resources = resources
        self._sink = sink
        public = [each.fileno() for each in resources.listeners]
        rows = 2 * (len(public) + 1)
        table = make_table(rows)
        self._table, self._rows = table, set(range(rows))
        self._descriptors = [local.fileno(), links.fileno(), table, *public, *resources.locks]
        every = Begin(
            role="worker",
            name="",
            options=options,
            fixed=fixed_part(settings),
            address=resources.address,
            addresses=table,
            rows=rows,
            row=0,
            key=token_bytes(16),
        )
        control = {"role": "control", "name": "control"}
        sockets = {"local": local.fileno(), "links": links.fileno()}
        self._control = _Place(replace(every, **control, **sockets))
        self._workers = [
            _Place(
                replace(
                    every,
                    name=f"worker {number + 1}",
                    public=[*public[number:], *public[:number]],
                )
            )
            for number in range(len(public))
        ]
        self._alive: set[Process] = set()
        self._counted: list[Family] = []
        """By processes that have ended."""
        self._stopping = asyncio.Event()
        self._code: int | None = None
        self._asked_again = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._terminal = _has_terminal()

    async def run(self, announce: Callable[[Started], None]) -> int:
        """Start, keep and end the processes; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        try:
            started = await self._start_all()
            if started is not None:
                announce(started)
                for place in (self._control, *self._workers):
                    self._in_background(self._keep(place))
                self._in_background(self._roll_when_asked())
                self._in_background(self._collect())
            await self._stopping.wait()
        finally:
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._end_all()
        return self._code or 0

    # Start

    async def _start_all(self) -> Started | None:
        """Start everything: control first, which makes the schema and the first account."""
        control = self._control.process = self._start(self._control)
        ready = await self._until_ready(control)
        if ready is None:
            return None
        for place in self._workers:
            place.process = self._start(place)
        for place in self._workers:
            if place.process is None or await self._until_ready(place.process) is None:
                return None
        first = None if ready.keys is None else Bootstrapped(**ready.keys)
        _log.info("processes_ready", workers=len(self._workers))
        return Started(self._resources.address, self._resources.folder, first, ready.example_model)

    async def _until_ready(self, process: Process) -> Ready | None:
        waiting = asyncio.create_task(process.until_ready(_START_SECONDS))
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((waiting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not waiting.done():
            waiting.cancel()
            return None
        ready = waiting.result()
        if ready is None:  # it has said why
            self._code = max(process.code or FORCED, FORCED)
            if process.code != StartError.exit_code:
                _log.error("process_ended", process=process.name, code=process.code)
            self._stopping.set()
        return ready

    def _start(self, place: _Place) -> Process:
        begin = replace(place.begin, row=min(self._rows))
        try:
            process = Process(begin, self._descriptors, self._sink.write, self._heed)
        except OSError as error:
            raise StartError(f"{begin.name} cannot be started: {error.strerror}") from error
        self._rows.remove(process.row)
        self._alive.add(process)
        return process

    def _try_to_start(self, place: _Place) -> Process | None:
        """Start a process; None where the system has no room for one now."""
        try:
            return self._start(place)
        except StartError as error:
            _log.error("process_not_started", process=place.begin.name, reason=str(error))
            return None

    # Life

    async def _keep(self, place: _Place) -> None:
        """Start a process again whenever it has ended by itself."""
        pause = _FIRST_PAUSE
        while (process := place.process) is not None:
            await process.ended.wait()
            await self._forget(process)
            async with place.lock:
                if place.process is not process:
                    continue
                if process.code == StartError.exit_code and place.is_first:
                    self._code = process.code  # it has said why
                    self._stopping.set()
                    return
                place.is_first = False
                pause = _FIRST_PAUSE if process.age > _CALM_SECONDS else pause
                _log.error(
                    "process_ended", process=place.begin.name, code=process.code, pause=pause
                )
                while place.process is process:
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, 2 * pause)
                    place.process = self._try_to_start(place) or process

    async def _roll_when_asked(self) -> None:
        while True:
            await self._asked_again.wait()
            self._asked_again.clear()
            if await self._roll():
                _log.info("processes_replaced")

    async def _roll(self) -> bool:
        """Replace every process by a new one; false where one does not start.

        The others stay then as they are.
        """
        for place in self._workers:
            async with place.lock:
                successor = self._try_to_start(place)
                if successor is None or not await self._is_successor(place, successor):
                    return False
                old, place.process = place.process, successor
            place.is_first = False
            if old is not None:
                old.say(Stop(hand_over=True))
                await self._ended(old)
        place = self._control
        async with place.lock:  # there is one at a time: the workers hold what is for it
            if (old := place.process) is not None:
                old.say(Stop(hand_over=True))
                await wait_for_event(old.quiet, self._seconds + _END_SECONDS)
                await self._ended(old)
            place.is_first = False
            if (successor := self._try_to_start(place)) is not None:
                place.process = successor
            return successor is not None and await self._is_successor(place, successor)

    async def _is_successor(self, place: _Place, successor: Process) -> bool:
        if await successor.until_ready(_START_SECONDS) is not None:
            return True
        _log.error(
            "process_not_replaced",
            process=place.begin.name,
            advice="the others stay; mend what it says, then send SIGHUP again",
        )
        successor.kill()
        await successor.ended.wait()
        await self._forget(successor)
        return False

    async def _ended(self, process: Process) -> None:
        if not await process.end_within(self._seconds + _END_SECONDS):
            _log.error("process_killed", process=process.name)
        await self._forget(process)

    # What they count

    async def _forget(self, process: Process) -> None:
        """Keep what a process that has ended had counted, and nothing else of it."""
        report = await process.last_report()
        if process in self._alive:
            self._alive.discard(process)
            clear_row(self._table, process.row)
            self._rows.add(process.row)
            self._counted = merge((self._counted, counters(report)))

    async def _collect(self) -> None:
        """Ask now and then what each process has counted: one may be killed."""
        while True:
            await asyncio.sleep(_COLLECT_SECONDS)
            for each in self._alive:
                each.say(Report())

    def _heed(self, process: Process, message: Quiet | Gather) -> None:
        if isinstance(message, Gather):
            self._in_background(self._answer(process, message))
        elif not self._stopping.is_set():
            process.say(Finish())  # workers wait for its successor

    async def _answer(self, process: Process, asked: Gather) -> None:
        others = [each for each in self._alive if each is not process and each.ready.done()]
        counted = self._counted if asked.counts else []
        if asked.counts:
            await asyncio.gather(*(each.ask_report(_REPORT_SECONDS) for each in others))
            counted = merge((counted, *(each.report for each in others)))
        workers = [place.process for place in self._workers]
        ready = sum(each is not None and each in others for each in workers)
        process.say(Gathered(asked.number, ready, counted))

    # End

    async def _end_all(self) -> None:
        """End the workers once no intern runs any more, then control."""
        control = self._control.process
        others = [each for each in self._alive if each is not control]
        if control is not None and control.code is None:
            control.say(Stop(hand_over=False))
            await wait_for_event(control.quiet, self._seconds + _END_SECONDS)
        for each in others:
            each.say(Stop(hand_over=False))
        await asyncio.gather(*map(self._ended, others))
        if control is not None:
            control.say(Finish())
            await self._ended(control)

    def _on_stop(self) -> None:
        if self._stopping.is_set():
            # The operator insists. Charges that were acknowledged are in the journals already.
            for each in self._alive:
                each.kill()
            sys.stderr.flush()
            os._exit(FORCED)
        _log.info("stopping", seconds=self._seconds)
        self._stopping.set()

    def _on_hangup(self) -> None:
        if self._terminal and not _has_terminal():
            self._stopping.set()  # it was closed: who ran this there wants no more of it
        else:
            self._asked_again.set()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _has_terminal() -> bool:
    try:
        with Path("/dev/tty").open("rb", buffering=0):
            return True
    except OSError:
        return False
