"""A process of several, from the supervisor's side."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tollhouse.apps.processes.messages import (
    FROM_PROCESS,
    TO_PROCESS,
    Gather,
    Quiet,
    Ready,
    Report,
    Reported,
)
from tollhouse.kernel.channel import ChannelError
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.subprocesses import own_module

if TYPE_CHECKING:
    from asyncio import StreamWriter
    from collections.abc import Callable, Sequence

    from tollhouse.apps.processes.messages import Begin, ToProcess
    from tollhouse.observability.merging import Family

COMMAND: Final = own_module("tollhouse.cli.member")
_LOG_PIPE_BYTES: Final = 1_048_576


class Process:
    """A process that was started; made inside the event loop."""

    def __init__(
        self,
        begin: Begin,
        inherited: Sequence[int],
        log: Callable[[bytes], None],
        heed: Callable[[Process, Quiet | Gather], None],
    ) -> None:
        """Start it with descriptors that it inherits.

        `log` takes whole lines of its log; `heed` is told what it says to the supervisor.

        Raises:
            OSError: It cannot be started.
        """
        loop = asyncio.get_running_loop()
        self.name = begin.name
        self.row = begin.row
        self.ready: asyncio.Future[Ready] = loop.create_future()
        self.quiet = asyncio.Event()
        self.ended = asyncio.Event()
        self.code: int | None = None
        """Its exit code, once it has ended."""
        self.report: list[Family] = []
        """What it had counted when it was last asked."""
        self._has_reported = asyncio.Event()
        self._heed = heed
        self._began = loop.time()
        self._log = log
        self._lines = b""
        self._writer: StreamWriter | None = None
        self._unsent: list[ToProcess] = []
        ours, theirs = socket.socketpair()
        self._logs, logs = os.pipe()
        with theirs:
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [*COMMAND, str(theirs.fileno()), begin.name],  # the name is for who looks on
                    stdin=subprocess.DEVNULL,
                    stdout=logs,
                    stderr=logs,
                    pass_fds=[theirs.fileno(), *inherited],
                    start_new_session=True,  # a terminal's Ctrl-C is for the supervisor
                )
            except OSError:
                os.close(self._logs)
                ours.close()
                raise
            finally:
                os.close(logs)
        with suppress(OSError):
            fcntl.fcntl(self._logs, fcntl.F_SETPIPE_SZ, _LOG_PIPE_BYTES)
        os.set_blocking(self._logs, False)
        loop.add_reader(self._logs, self._read_log)
        self._end = os.pidfd_open(self._process.pid)
        loop.add_reader(self._end, self._on_end)
        self._talk = asyncio.create_task(self._listen(ours, begin), name=f"{begin.name}: messages")

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    @property
    def age(self) -> float:
        """How many seconds it has lived."""
        return asyncio.get_running_loop().time() - self._began

    def say(self, message: ToProcess) -> None:
        """Send it a message, if it is still there."""
        if self._writer is None:
            self._unsent.append(message)
        elif not self._writer.is_closing():
            self._writer.write(TO_PROCESS.encode(message))

    async def ask_report(self, seconds: float) -> None:
        """Ask what it has counted, and return once it has said so, or the seconds are over."""
        self._has_reported.clear()
        self.say(Report())
        await wait_for_event(self._has_reported, seconds)

    async def last_report(self) -> list[Family]:
        """Return what it had counted when it ended, as far as it has said."""
        await self._talk
        return self.report

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end_within(self, seconds: float) -> bool:
        """Wait for its end, and kill it once the seconds are over; tell whether it ended itself."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), seconds)
            return True
        self.kill()
        await self.ended.wait()
        return False

    async def until_ready(self, seconds: float) -> Ready | None:
        """Return what it says once it answers; None where it ends, or takes longer."""
        end = asyncio.create_task(self.ended.wait())
        await asyncio.wait((end, self.ready), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        return self.ready.result() if self.ready.done() else None

    async def _listen(self, link: socket.socket, begin: Begin) -> None:
        reader, self._writer = await asyncio.open_unix_connection(sock=link)
        messages = FROM_PROCESS.reader(reader)
        for each in (begin, *self._unsent):
            self._writer.write(TO_PROCESS.encode(each))
        with suppress(ChannelError):
            while True:
                message = await messages.receive()
                if isinstance(message, Reported):
                    self.report = message.families
                    self._has_reported.set()
                elif isinstance(message, Ready):
                    if not self.ready.done():
                        self.ready.set_result(message)
                else:
                    if isinstance(message, Quiet):
                        self.quiet.set()
                    self._heed(self, message)
        self._writer.close()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        os.close(self._end)
        self.code = self._process.wait()
        self._read_log()
        self.quiet.set()
        self.ended.set()

    def _read_log(self) -> None:
        """Pass on whole lines; what is left at the end has no other one behind it."""
        while self._logs >= 0:
            try:
                data = os.read(self._logs, _LOG_PIPE_BYTES)
            except BlockingIOError:
                return
            lines, found, rest = (self._lines + data).rpartition(b"\n")
            self._lines = rest
            if not data:
                asyncio.get_running_loop().remove_reader(self._logs)
                os.close(self._logs)
                self._logs = -1
                lines, found = (rest, b"\n") if rest else (b"", b"")
            if found:
                self._log(lines + found)
