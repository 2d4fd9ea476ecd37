"""A sandbox that runs, from the server's side: what it is waited for and ended by.

    the server ──> outer ──> first of the sandbox ──> the daemon and all that it starts
                    │          └ its end is the end of every process below it
                    └ a process of ours: bubblewrap, or a supervisor

The daemon reads its settings on standard input and ends where that ends. What is left after that
is killed, and only when the kernel says that the first process is gone (by then it has ended all
of its namespace) is the sandbox called ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.interns.runtimes.cgroups import Group
    from tollhouse.interns.runtimes.launching import Started
    from tollhouse.interns.runtimes.quota import DiskWatch

_log = structlog.get_logger(__name__)

_SIGNALLED: Final = 128
"""A program that runs another says so of one that a signal ended: this and the signal's number."""


class First:
    """The first process of a sandbox."""

    def __init__(self, number: int, parent: int) -> None:
        """Hold on to it, so that its number can mean no other process.

        Args:
            number: Of the process.
            parent: Of the one that started it.

        Raises:
            OSError: It is gone.
        """
        self.number = number
        self._descriptor = os.pidfd_open(number)
        status = Path(f"/proc/{number}/status").read_text()
        if f"\nPPid:\t{parent}\n" not in status:
            os.close(self._descriptor)
            raise ProcessLookupError

    def kill(self) -> None:
        """Kill it, if it is there."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it is gone, and let go of it."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._descriptor, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)


class RunningSandbox:
    """A sandbox that runs."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that belongs to it
        self,
        name: str,
        started: Started,
        first: First | None,
        group: Group | None,
        watch: DiskWatch,
        limits_enforced: frozenset[str],
    ) -> None:
        """Take what belongs to it; it owns all of that from now on."""
        self.name = name
        self.limits_enforced = limits_enforced
        self._started = started
        self._first = first
        self._group = group
        self._watch = watch
        self._stopped = False
        self._ended = asyncio.create_task(self._end())
        self._watching = asyncio.create_task(watch.run(self.kill))

    def when_ended(self, told: Callable[[], None]) -> None:
        """Call something when nothing of it is left."""
        self._ended.add_done_callback(lambda _: told())

    @property
    def disk_full(self) -> bool:
        """Whether it may not write, since its workspace holds too much."""
        return self._watch.full

    async def wait(self) -> str:
        """Wait until it has ended; return how, in words for its owner."""
        return await asyncio.shield(self._ended)

    async def stop(self, seconds: float) -> None:
        """End it: politely, and after so many seconds by force."""
        self._stopped = True
        self._started.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ended)
        if not self._ended.done():
            self.kill()
        await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Kill all of it, without waiting for its end."""
        process = self._started.process
        if process.returncode is not None:
            return  # `_end` does the rest
        if self._first is not None:
            self._first.kill()
        else:
            process.terminate()  # a supervisor kills what it started, then ends

    async def _end(self) -> str:
        code = await self._started.process.wait()
        if self._first is not None:
            self._first.kill()
            await self._first.gone()
        self._started.stdin.close()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        out_of_memory = False
        if self._group is not None:
            out_of_memory = await asyncio.to_thread(self._group.ran_out_of_memory)
            await asyncio.to_thread(self._group.remove)
        how = self._how(code, out_of_memory=out_of_memory)
        said = await self._started.heard.text()
        _log.info("sandbox ended", sandbox=self.name, how=how, said=said)
        return how

    def _how(self, code: int, *, out_of_memory: bool) -> str:
        killed = {-signal.SIGKILL, _SIGNALLED + signal.SIGKILL}
        if self._watch.killed:
            return "it was killed: it went on filling its disk"
        if out_of_memory and code in killed:
            return "it was killed: out of memory"
        if self._stopped:
            return "it was stopped"
        number = -code if code < 0 else code - _SIGNALLED
        if number > 0:
            return f"it was killed by signal {number}"
        return f"it ended with code {code}" if code else "it ended"
