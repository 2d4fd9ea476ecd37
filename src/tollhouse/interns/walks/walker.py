"""The server's side of walks: at most so many at once, each killed when nobody waits for it.

    async with asyncio.timeout(60):
        digest = await walker.digest(folder, most, alive)

A walk has no deadline of its own; `alive` is called while it goes on, for who gives it one.
A walk that waits for its turn goes on too: those before it have their own deadlines.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import structlog

from tollhouse.interns.size import Held
from tollhouse.interns.walks.child import FAILED, FOUND, LARGEST, LENGTH_BYTES, LIFE, PIECE
from tollhouse.kernel.subprocesses import own_module, start

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from pathlib import Path

_PROGRAM: Final = "tollhouse.interns.walks"
_MEMORY_BYTES: Final = 1024 * 1024 * 1024
"""Of one walk; see `WalkRefused`."""
_AT_ONCE: Final[Mapping[str, int]] = {"digest": 4, "pack": 2, "measure": 2}
_TURN_SECONDS: Final = 1.0
_ENVIRONMENT: Final = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables that a walk gets: where Python may be found, and nothing that is secret."""
_END_SECONDS: Final = 2.0
_log = structlog.get_logger(__name__)


class WalkRefused(Exception):
    """The workspace is none that can be walked through; the message is for its owner."""

    def __init__(self, message: str) -> None:
        """Say what is wrong with it: no path, no secret."""
        super().__init__(message)
        self.message = message


class WalkBroken(Exception):
    """A walk ended without an end, or did not keep to the protocol."""


_T = TypeVar("_T")


class _Failure(msgspec.Struct, forbid_unknown_fields=True):
    reason: str | None = None
    errno: int | None = None


class Walker:
    """Starts walks."""

    def __init__(
        self, *, memory_bytes: int = _MEMORY_BYTES, at_once: Mapping[str, int] = _AT_ONCE
    ) -> None:
        """Start none yet.

        Args:
            memory_bytes: That one walk may have.
            at_once: Walks of each program that may run at a time.
        """
        self._memory = memory_bytes
        self._turns = defaultdict[str, asyncio.Semaphore](asyncio.Semaphore)
        self._turns |= {name: asyncio.Semaphore(count) for name, count in at_once.items()}

    async def digest(
        self,
        folder: Path,
        alive: Callable[[], None],
        *,
        flush: bool = False,
    ) -> str:
        """Return the digest of a workspace; see `workspace.digest`.

        Args:
            folder: The workspace.
            alive: Called while it goes on.
            flush: Whether all of it is to be on the disk when this returns.

        Raises:
            WalkRefused: It cannot be walked through.
            WalkBroken: The walk ended without an end.
            OSError: It cannot be read.
        """
        found = await self._found("digest", folder, alive, flush=flush)
        return _decoded(found, str)

    async def measure(
        self,
        folder: Path,
        processes: Sequence[int],
        alive: Callable[[], None],
    ) -> Held:
        """Return what a workspace holds; see `size.measure`.

        Args:
            folder: The workspace.
            processes: Its programs.
            alive: Called while it goes on.

        Raises:
            WalkRefused: It cannot be walked through.
            WalkBroken: The walk ended without an end.
            OSError: It cannot be read.
        """
        found = await self._found("measure", folder, alive, processes=processes)
        return _decoded(found, Held)

    async def pack(self, folder: Path, alive: Callable[[], None]) -> AsyncGenerator[bytes]:
        """Yield the archive of a workspace; see `archive.pack`. It waits for whoever draws.

        Raises:
            WalkRefused: It cannot be walked through.
            WalkBroken: The walk ended without an end: what came is no archive.
            OSError: It cannot be read.
        """
        async with aclosing(self._frames("pack", folder, alive)) as frames:
            async for kind, content in frames:
                if kind == PIECE:
                    yield content

    async def _found(
        self, program: str, folder: Path, alive: Callable[[], None], **order: object
    ) -> bytes:
        async with aclosing(self._frames(program, folder, alive, **order)) as frames:
            async for kind, content in frames:
                if kind == FOUND:
                    return content
        raise WalkBroken

    async def _frames(
        self, program: str, folder: Path, alive: Callable[[], None], **order: object
    ) -> AsyncGenerator[tuple[bytes, bytes]]:
        """Yield what a walk sends, to its end.

        Raises:
            WalkRefused: It says that the workspace is none to be walked through.
            WalkBroken: It has no end.
            OSError: It says that something cannot be read.
        """
        order |= {"folder": str(folder), "memory_bytes": self._memory}
        async with self._turn(program, alive), _running(program, order) as output:
            kind = LIFE
            while kind != FOUND:
                kind, content = await _frame(output)
                alive()
                if kind == FAILED:
                    raise _failure(content)
                yield kind, content

    @asynccontextmanager
    async def _turn(self, program: str, alive: Callable[[], None]) -> AsyncGenerator[None]:
        """Wait for a turn, first come, first served."""
        turns = self._turns[program]
        getting = asyncio.create_task(turns.acquire())
        try:
            while not (await asyncio.wait({getting}, timeout=_TURN_SECONDS))[0]:
                alive()
            yield
        finally:
            if not getting.cancel():  # it was got
                turns.release()


@asynccontextmanager
async def _running(
    program: str, order: Mapping[str, object]
) -> AsyncGenerator[asyncio.StreamReader]:
    """Run a program for as long as the block runs, and give what it sends."""
    process = await start(
        *own_module(f"{_PROGRAM}.{program}"),
        msgspec.json.encode(order).decode(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        start_new_session=True,
    )
    try:
        if process.stdout is None:
            raise WalkBroken
        yield process.stdout
    finally:
        await _ended(process, program)


async def _ended(process: Process, program: str) -> None:
    """Kill a process, if it is there, and wait until it is gone."""
    with suppress(ProcessLookupError):
        process.kill()
    try:
        async with asyncio.timeout(_END_SECONDS):
            while process.stdout is not None and await process.stdout.read(LARGEST):
                continue  # what was under way; until then asyncio has not seen its end
            await process.wait()
    except TimeoutError:  # a disk that does not answer holds it
        _log.error("intern_walk_not_ended", program=program, process=process.pid)


async def _frame(output: asyncio.StreamReader) -> tuple[bytes, bytes]:
    try:
        head = await output.readexactly(1 + LENGTH_BYTES)
        kind, length = head[:1], int.from_bytes(head[1:], "big")
        if kind not in {LIFE, PIECE, FOUND, FAILED} or length > LARGEST:
            raise WalkBroken
        return kind, await output.readexactly(length)
    except EOFError:
        raise WalkBroken from None


def _failure(content: bytes) -> Exception:
    failure = _decoded(content, _Failure)
    match failure.reason:
        case "too_much_memory":
            return WalkRefused("its files and folders are too many, or their names too long")
        case _:
            number = failure.errno or 0
            return OSError(number, os.strerror(number) if number else "it was changed meanwhile")


def _decoded(content: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        raise WalkBroken from None
