"""The proxy's process from the gateway's side: started, told of sessions, asked and answered."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.kernel.subprocesses import own_module, start
from tollhouse.vault.egress.messages import (
    LARGEST_OPEN,
    Close,
    Opened,
    frame,
    open_message,
    read_from_proxy,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Sequence

    from tollhouse.vault.egress.answers import Answer, Answers, Question
    from tollhouse.vault.egress.messages import Begin, Open

COMMAND: Final = own_module("tollhouse.apps.egress")
_END_SECONDS: Final = 5.0
_FULL_SECONDS: Final = 0.01
_log = structlog.get_logger(__name__)


class ProxyProcess:
    """A running proxy."""

    def __init__(
        self,
        process: Process,
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        doors: socket.socket,
        answers: Answers,
    ) -> None:
        """Take what leads to it."""
        self._process = process
        self._reader, self._writer = link
        self._doors = doors
        self._answers = answers
        self._answering: set[asyncio.Task[None]] = set()

    async def open(self, opened: Open, listener: socket.socket) -> None:
        """Tell it of a session, as soon as it takes one.

        Raises:
            OSError: It is gone.
        """
        message = open_message(opened)
        if len(message) > LARGEST_OPEN:
            raise OSError
        while True:
            try:
                socket.send_fds(self._doors, [message], [listener.fileno()])
            except BlockingIOError:
                await asyncio.sleep(_FULL_SECONDS)
            else:
                return

    def close(self, session: str) -> None:
        """Tell it that a session has ended."""
        if not self._writer.is_closing():
            self._writer.write(frame(Close(session)))

    async def listen(self, heard: Callable[[Opened], None]) -> str:
        """Answer what it asks until it is gone, or says what it should not.

        Args:
            heard: Told of each session that it serves; must not raise.

        Returns:
            How it ended.
        """
        while True:
            try:
                message = await read_from_proxy(self._reader)
            except (EOFError, OSError):
                return f"it ended with code {await self._ended()}"
            except msgspec.DecodeError:
                return "it said what cannot be understood"
            if isinstance(message, Opened):
                heard(message)
            else:
                self._answer(message)

    async def _ended(self) -> int:
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def stop(self) -> None:
        """End it, and wait until it is gone."""
        self._writer.close()  # it ends with us
        self._doors.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _answer(self, question: Question) -> None:
        task = asyncio.create_task(self._say(self._answers.answer(question)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _say(self, answering: Awaitable[Answer]) -> None:
        answer = await answering
        if not self._writer.is_closing():
            self._writer.write(frame(answer))


async def start_proxy(begin: Begin, answers: Answers, arguments: Sequence[str]) -> ProxyProcess:
    """Start a proxy.

    Args:
        begin: What holds for all its sessions.
        answers: Answers what it asks.
        arguments: Further ones of its command.

    Raises:
        OSError: It cannot be started.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    our_doors, their_doors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = None
    try:
        ours.setblocking(False)  # noqa: FBT003 - its only form
        our_doors.setblocking(False)  # noqa: FBT003 - its only form
        link = await asyncio.open_unix_connection(sock=ours)
        process = await start(
            *COMMAND,
            *("--link", str(theirs.fileno()), "--doors", str(their_doors.fileno())),
            *arguments,
            pass_fds=(theirs.fileno(), their_doors.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
    except BaseException:
        if link is not None:
            link[1].transport.abort()  # it holds the socket
        ours.close()
        our_doors.close()
        raise
    finally:
        theirs.close()
        their_doors.close()
    link[1].write(frame(begin))
    return ProxyProcess(process, link, our_doors, answers)
