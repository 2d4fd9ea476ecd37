"""One conversation with a terminal, over connections that may drop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.access import refusal
from tollhouse.cli.interns.keys import Keys, Typed
from tollhouse.cli.interns.outcomes import Dropped, Exited, Left
from tollhouse.cli.interns.replies import number, unclear
from tollhouse.cli.interns.unsent import Unsent
from tollhouse.cli.json_objects import parsed
from tollhouse.cli.output import one_line

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.http11 import Response

    from tollhouse.cli.interns.access import Access
    from tollhouse.cli.interns.local import Local

_BY_SIGNAL: Final = 128
_ENDED: Final = 1001
_BROKEN_RULES: Final = frozenset((1002, 1007, 1009))
"""Codes with which this end closes: what came is no WebSocket, no text, or too large."""
_REFUSALS: Final = range(4400, 4500)
"""Codes after which the same would happen again."""
_NOT_FOUND: Final = 404
_PING_SECONDS: Final = 20.0
_PONG_SECONDS: Final = 60.0
_OPEN_SECONDS: Final = 15.0
_CLOSE_SECONDS: Final = 2.0
_MESSAGE: Final = 32 * 1024
_LARGEST: Final = 1 << 20
"""Bytes of a message; a daemon's have 256 KiB at most."""
_LARGEST_CODE: Final = 255


class Talk:
    """What was said so far, which is where the next connection goes on."""

    def __init__(self, local: Local, session: str) -> None:
        """Take who types here, and the terminal's name there."""
        self.local = local
        self.has_begun = False
        self._session = session
        self._position = 0
        self._keys = Keys()
        self._unsent = Unsent()
        self._input_ended = False
        self._is_attached = False
        self._news = asyncio.Event()
        self._resized = False

    def resized(self) -> None:
        """The terminal here has another size."""
        self._resized = True
        self._news.set()

    async def over(self, access: Access) -> Exited:
        """Talk over a connection, to its end.

        Raises:
            Dropped: There is none any more; what was said counts.
            CommandFailed: It was refused, or ended in a way that another connection does not mend.
        """
        from websockets.asyncio.client import ClientConnection, connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        class Direct(connect):
            """Follows no redirect: the token is for one host."""

            def process_redirect(self, exc: Exception) -> Exception:
                return exc

        class Strict(ClientConnection):
            """Ends at once where rules are broken: who breaks them need not close either."""

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                if self.protocol.parser_exc is not None:
                    self.transport.abort()

        connecting = Direct(
            self._address(access),
            additional_headers=access.headers,
            create_connection=Strict,
            user_agent_header="tollhouse-cli",
            compression=None,
            proxy=None if access.is_near else True,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PONG_SECONDS,
            max_size=_LARGEST,
        )
        try:
            connection = await connecting
        except InvalidStatus as refused:
            raise self._refused(refused.response) from None
        except (OSError, TimeoutError, WebSocketException, EOFError) as error:
            text = f"the intern cannot be reached ({one_line(str(error)) or type(error).__name__})"
            raise Dropped(text) from None
        try:
            return await self._talk(connection)
        finally:
            await connection.close()

    def _address(self, access: Access) -> str:
        query: dict[str, object] = {
            "session": self._session,
            "from": self._position,
            "tty": str(self.local.is_terminal).lower(),
            "create": str(not self.has_begun).lower(),
        }
        size = self.local.size() if self.local.is_terminal else None
        if size is not None:
            query["rows"], query["cols"] = size
        if self.local.is_terminal and (term := os.environ.get("TERM")):
            query["term"] = term
        # `http` becomes `ws`, and `https` becomes `wss`.
        return f"ws{access.origin.removeprefix('http')}/terminal?{urlencode(query)}"

    def _refused(self, response: Response) -> Exception:
        status = response.status_code
        failed = refusal(status, bytes(response.body or b""))
        if status == _NOT_FOUND and self.has_begun:
            return CommandFailed("the terminal ended while there was no connection")
        return Dropped(str(failed)) if failed.passes else failed

    async def typed(self) -> Left:
        """Take what is typed here, also between two connections, until the person leaves."""
        while True:
            while self._unsent.room < _MESSAGE:
                await self._wait()
            data = await self.local.read()
            if not data and not self.local.is_terminal:
                self._input_ended = True
                self._news.set()
                await asyncio.Event().wait()  # the end of a script is not that of its output
            keys = self._keys.typed(data) if self.local.is_terminal else Typed(data, leaves=False)
            if keys.leaves or not data:  # or the terminal is gone
                return Left()
            self._unsent.add(keys.data)
            self._news.set()

    async def _talk(self, connection: ClientConnection) -> Exited:
        self._is_attached = False
        hearing = asyncio.ensure_future(self._hear(connection))
        saying = asyncio.ensure_future(self._say(connection))
        try:
            return await hearing
        except asyncio.CancelledError:
            await self._hang_up(connection)
            raise
        finally:
            for task in (hearing, saying):
                task.cancel()
            await asyncio.gather(hearing, saying, return_exceptions=True)

    async def _hear(self, connection: ClientConnection) -> Exited:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                message = await connection.recv()
                if isinstance(message, str):
                    if (exited := self._told(message)) is not None:
                        return exited
                elif not await self.local.write(message):
                    await self._hang_up(connection)
                    return Exited(_BY_SIGNAL + signal.SIGPIPE)
                else:
                    self._position += len(message)
        except ConnectionClosed as closed:
            if closed.sent and not closed.rcvd_then_sent and closed.sent.code in _BROKEN_RULES:
                raise unclear() from None
            code = closed.rcvd.code if closed.rcvd else None
            reason = closed.rcvd.reason if closed.rcvd else ""
        if code in _REFUSALS or code == _ENDED:
            raise CommandFailed(one_line(reason) or "the intern has closed the terminal")
        text = "the connection to the intern dropped"
        raise Dropped(text, was_attached=self._is_attached)

    def _told(self, text: str) -> Exited | None:
        """Take a control message; return how the shell has ended, where it says so.

        Raises:
            CommandFailed: It cannot be understood.
        """
        told = parsed(text)
        position = told.get("position")
        match told.get("type"):
            case "attached":
                self._attached(number(position), number(told.get("input")))
            case "input":
                self._unsent.taken(number(position))
            case "exit":
                return Exited(number(told.get("code"), _LARGEST_CODE))
            case str():
                pass  # a newer daemon says more
            case _:
                raise unclear()
        self._news.set()
        return None

    def _attached(self, position: int, taken: int) -> None:
        if self.has_begun and position > self._position:
            self.local.say("some of the output is lost: there was too much of it")
        self._position = position
        self._unsent.attached(taken)
        self._resized = self.local.is_terminal
        self.has_begun = self._is_attached = True

    async def _say(self, connection: ClientConnection) -> None:
        """Send what is to be sent, for as long as the connection is there."""
        from websockets.exceptions import ConnectionClosed

        eof_sent = False
        with suppress(ConnectionClosed):
            while True:
                if not self._is_attached:
                    await self._wait()
                elif self._resized and (size := self.local.size()):
                    self._resized = False
                    rows, columns = size
                    resize = {"type": "resize", "rows": rows, "cols": columns}
                    await connection.send(json.dumps(resize))
                elif data := self._unsent.next(_MESSAGE):
                    await connection.send(data)
                elif self._input_ended and not eof_sent:
                    eof_sent = True
                    await connection.send(json.dumps({"type": "eof"}))
                else:
                    await self._wait()

    async def _hang_up(self, connection: ClientConnection) -> None:
        """Have a script end whose output nobody will see; a terminal's shell runs on."""
        if self.local.is_terminal:
            return
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await connection.send(json.dumps({"type": "hangup"}))

    async def _wait(self) -> None:
        self._news.clear()
        await self._news.wait()
