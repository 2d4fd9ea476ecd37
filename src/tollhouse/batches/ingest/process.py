"""The ingest child from the gateway's side: started, fed, listened to, and never left behind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches.chunks import Chunk
from tollhouse.batches.ingest.frames import (
    END,
    PIECE,
    Done,
    Failed,
    Refused,
    body_frames,
    read_frame,
    refusal,
)
from tollhouse.kernel.errors import Bug, Unavailable
from tollhouse.kernel.subprocesses import own_module, start

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from tollhouse.batches.ingest.intake import IntakeLimits
    from tollhouse.batches.ingest.reader import Summary

_log = structlog.get_logger(__name__)
COMMAND: Final = own_module("tollhouse.batches.ingest.child")


class ChildGone(Unavailable):
    """The child could not be started, or ended by itself: killed, or out of memory."""

    def __init__(self, reason: str) -> None:
        """Tell the caller to come back, and keep what happened for the log.

        Args:
            reason: What the operator has to know; the caller never sees it.
        """
        super().__init__("the batch cannot be read at the moment; try again later")
        self.reason = reason


class _Ended(Exception):
    """The child takes nothing more; why, it says itself."""


class Child:
    """A running ingest child."""

    def __init__(self, process: Process) -> None:
        """Take a process whose standard input and output are pipes."""
        if process.stdin is None or process.stdout is None:
            raise Bug("the ingest child has no pipes")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def read(
        self,
        begin: bytes,
        rest: AsyncIterator[bytes],
        take: Callable[[Chunk], Awaitable[None]],
    ) -> Summary:
        """Have the child read a body.

        Args:
            begin: The first bytes of the body.
            rest: What follows them; read as fast as the child and `take` allow.
            take: Is given the chunks, one after the other.

        Returns:
            What came, as a whole.

        Raises:
            Invalid: The child refuses it, as soon as it knows; with its kinds.
            ChildGone: The child ended by itself.
            Bug: It has a fault.
            Exception: What `rest` or `take` raises.
        """
        feeding = asyncio.create_task(self._feed(begin, rest))
        try:
            return await self._listen(take)
        except EOFError:
            if feeding.done():
                await feeding  # if what failed was the body, this says it
            raise _gone(f"it ended with code {await self._process.wait()}") from None
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def stop(self) -> None:
        """End the child, whatever it is at, and wait until it is gone."""
        self._kill()
        self._stdin.close()
        await self._stdout.read()
        await self._process.wait()

    async def _listen(self, take: Callable[[Chunk], Awaitable[None]]) -> Summary:
        while True:
            match await read_frame(self._stdout):
                case Chunk() as chunk:
                    await take(chunk)
                case Done(summary):
                    return summary
                case Refused() as message:
                    raise refusal(message)
                case Failed(reason):
                    raise Bug(f"the ingest child: {reason}")

    async def _feed(self, begin: bytes, rest: AsyncIterator[bytes]) -> None:
        try:
            await self._say(begin)
            size = PIECE
            while size >= PIECE:  # a shorter one is the last
                data = await gather(rest, PIECE)
                size = len(data)
                await self._say(data)
            await self._write(END)
        except _Ended:
            return
        except BaseException:
            self._kill()  # so that whoever listens hears of it
            raise

    async def _say(self, data: bytes) -> None:
        for frame in body_frames(data):
            await self._write(*frame)

    async def _write(self, *parts: bytes | memoryview) -> None:
        if self._stdin.is_closing():
            raise _Ended
        try:
            self._stdin.writelines(parts)
            await self._stdin.drain()
        except ConnectionError:
            raise _Ended from None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


@asynccontextmanager
async def ingest_child(limits: IntakeLimits) -> AsyncGenerator[Child]:
    """Start a child, and end it when the block is left.

    Raises:
        ChildGone: It cannot be started.
    """
    child = await _start(limits)
    try:
        yield child
    finally:
        await child.stop()


async def _start(limits: IntakeLimits) -> Child:
    try:
        process = await start(
            *COMMAND,
            *map(str, astuple(limits)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a trace could hold a part of the body
            limit=PIECE,
        )
    except OSError as error:
        raise _gone(f"it cannot be started: {error}") from error
    return Child(process)


def _gone(reason: str) -> ChildGone:
    _log.error("ingest_child_gone", reason=reason)
    return ChildGone(reason)


async def gather(pieces: AsyncIterator[bytes], size: int) -> bytes:
    """Return the next pieces as one, of at least a size where they do not end before."""
    gathered: list[bytes] = []
    length = 0
    async for piece in pieces:
        gathered.append(piece)
        length += len(piece)
        if length >= size:
            break
    return b"".join(gathered)
