"""Jobs on the files of workspaces, each in a process of its own: digest, measure, pack.

    async with asyncio.timeout(60):
        digest = await jobs.digest(folder, alive)

A workspace is as large as a stranger has made it. A thread that reads it cannot be ended; a
process can, at a deadline or when nobody waits any more, and its memory has a bound. A job has no
deadline of its own; it calls `alive` while it goes on, for callers that give it one. A job that
waits for its turn counts as going on: those before it have their own deadlines.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import structlog

from tollhouse.interns.workspaces.contents import DiskUsage
from tollhouse.interns.workspaces.messages import (
    FROM_WORKER,
    LARGEST_PIECE,
    Alive,
    ArchivePiece,
    Found,
    FromWorker,
    JobFailed,
    Order,
)
from tollhouse.kernel.channel import ChannelError
from tollhouse.kernel.subprocesses import own_module, start

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

_WORKER: Final = "tollhouse.interns.workspaces.worker"
_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Of one job; see `JobRefused`."""
_AT_ONCE: Final[Mapping[str, int]] = {"digest": 4, "pack": 2, "measure": 2}
_TURN_SECONDS: Final = 1.0
_ENVIRONMENT: Final = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that a worker gets: where Python may be found, and nothing that is secret."""
_END_SECONDS: Final = 2.0
_log = structlog.get_logger(__name__)


class JobRefused(Exception):
    """The workspace has too much in it for the job; the message is for its owner."""


class JobBroken(Exception):
    """A worker ended without a result, or did not keep to the protocol."""


_T = TypeVar("_T")


class WorkspaceJobs:
    """Runs jobs, of each kind at most so many at a time.

    Each raises `JobRefused`, `JobBroken`, or `OSError` where the workspace cannot be read.
    """

    def __init__(
        self, *, memory_bytes: int = _MEMORY_BYTES, at_once: Mapping[str, int] = _AT_ONCE
    ) -> None:
        self._memory = memory_bytes
        self._turns = defaultdict[str, asyncio.Semaphore](asyncio.Semaphore)
        self._turns |= {name: asyncio.Semaphore(count) for name, count in at_once.items()}

    async def digest(self, folder: Path, alive: Callable[[], None], *, flush: bool = False) -> str:
        """Return the digest of a workspace; see `contents.digest`."""
        return await self._found(Order("digest", str(folder), self._memory, flush), alive, str)

    async def measure(
        self, folder: Path, processes: Sequence[int], alive: Callable[[], None]
    ) -> DiskUsage:
        """Return what a workspace holds; see `contents.measure`."""
        order = Order("measure", str(folder), self._memory, processes=list(processes))
        return await self._found(order, alive, DiskUsage)

    async def pack(self, folder: Path, alive: Callable[[], None]) -> AsyncGenerator[bytes]:
        """Yield the archive of a workspace as fast as it is drawn; see `archive_format.pack`.

        After an error, what came is no archive.
        """
        order = Order("pack", str(folder), self._memory)
        async with aclosing(self._messages(order, alive)) as messages:
            async for message in messages:
                if isinstance(message, ArchivePiece):
                    yield message.data

    async def _found(self, order: Order, alive: Callable[[], None], kind: type[_T]) -> _T:
        async with aclosing(self._messages(order, alive)) as messages:
            async for message in messages:
                if isinstance(message, Found) and isinstance(message.result, kind):
                    return message.result
        raise JobBroken

    async def _messages(
        self, order: Order, alive: Callable[[], None]
    ) -> AsyncGenerator[Alive | ArchivePiece | Found]:
        """Yield what a worker sends, to its end."""
        async with self._turn(order.job, alive), _worker(order) as output:
            reader = FROM_WORKER.reader(output)
            message: FromWorker = Alive()
            while not isinstance(message, Found):
                try:
                    message = await reader.receive()
                except ChannelError:
                    raise JobBroken from None
                alive()
                if isinstance(message, JobFailed):
                    raise _error_of(message)
                yield message

    @asynccontextmanager
    async def _turn(self, job: str, alive: Callable[[], None]) -> AsyncGenerator[None]:
        """Wait for a turn, first come, first served."""
        turns = self._turns[job]
        getting = asyncio.create_task(turns.acquire())
        try:
            while not (await asyncio.wait({getting}, timeout=_TURN_SECONDS))[0]:
                alive()
            yield
        finally:
            if not getting.cancel():  # it was got
                turns.release()


@asynccontextmanager
async def _worker(order: Order) -> AsyncGenerator[asyncio.StreamReader]:
    """Run a worker for as long as the block runs, and yield its output."""
    process = await start(
        *own_module(_WORKER),
        msgspec.json.encode(order).decode(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        start_new_session=True,
    )
    try:
        if process.stdout is None:
            raise JobBroken
        yield process.stdout
    finally:
        await _end(process, order.job)


async def _end(process: Process, job: str) -> None:
    """Kill a process, if it is there, and wait until it is gone."""
    with suppress(ProcessLookupError):
        process.kill()
    try:
        async with asyncio.timeout(_END_SECONDS):
            while process.stdout is not None and await process.stdout.read(LARGEST_PIECE):
                continue  # what was under way; until then asyncio has not seen its end
            await process.wait()
    except TimeoutError:  # a disk that does not answer holds it
        _log.error("intern_walk_not_ended", program=job, process=process.pid)


def _error_of(failed: JobFailed) -> Exception:
    if failed.out_of_memory:
        return JobRefused("its files and folders are too many, or their names too long")
    number = failed.errno
    return OSError(number, os.strerror(number) if number else "it was changed meanwhile")
