"""Interns' daemons, on the gateway's own port: terminals, files and sessions of running interns.

    Authorization: Bearer <token of a daemon>   ──────> that daemon's socket
    any other Authorization                     ──────> the API

The token alone decides, of each request by itself: a proxy before us may send requests for daemons
and for the API over one connection. So no key for the gateway ever reaches a sandbox; of the other
headers only those go with it that the daemon reads. What comes back is not trusted, since the agent
may answer in the daemon's place: its framing is checked, only headers that describe the answer are
passed on, and browsers run none of it as a page.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from websockets.asyncio.client import ClientConnection, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from tollhouse.api.websocket import MOST_UNSENT
from tollhouse.kernel.errors import Unavailable
from tollhouse.outbound.http.parser import ResponseParser
from tollhouse.outbound.http.port import UpstreamError

if TYPE_CHECKING:
    from pathlib import Path

    from websockets.http11 import Response

    from tollhouse.api.asgi import Receive, Scope, Send
    from tollhouse.interns.sandboxes import ForwardedPort

_AWAY: Final = "The intern's daemon does not answer; try again."
_MEMORY_FULL: Final = (
    "The intern's programs use all the memory that it may have, so its daemon does not answer: "
    "suspend it to end them, or try again."
)
_HANDSHAKE_SECONDS: Final = 4.0
"""For a daemon's answer to the handshake of a WebSocket. Somebody looks at a terminal meanwhile."""
_PIECE: Final = 65_536
_LARGEST_MESSAGE: Final = 1_048_576
"""Bytes of a daemon's WebSocket message."""
_FINAL: Final = range(200, 600)
"""Statuses that an answer may have."""
_SENT: Final = frozenset(
    (
        *(b"accept", b"authorization", b"content-length", b"content-range", b"content-type"),
        *(b"if-range", b"last-event-id", b"range"),
    )
)
"""What goes to the daemon; whatever else a client or a proxy says is not for the sandbox."""
_RETURNED: Final = frozenset(
    (
        *("accept-ranges", "allow", "content-length", "content-range", "content-type", "etag"),
        *("retry-after", "www-authenticate", "x-accel-buffering"),
    )
)
"""What comes back. A cookie, say, could be set for the gateway's own host name."""
_ADDED: Final = (
    (b"cache-control", b"no-store"),  # the API has the same addresses
    (b"content-security-policy", b"sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
_WITHOUT_BODY: Final = (204, 304)
_GOING_AWAY: Final = 1001
_RESTARTS: Final = 1012
_NEVER_SENT: Final = frozenset((None, 1005, 1006, 1015))
"""Codes that no close frame may carry. Source: RFC 6455, section 7.4.1."""
_CLOSING_SECONDS: Final = 1.0
"""How long a client may take to be told that its intern is taken down."""


async def relay(door: ForwardedPort, scope: Scope, receive: Receive, send: Send) -> None:
    """Pass a request or a WebSocket on to an intern's daemon, and back what it answers.

    It ends with either end, and when the intern is taken down. An answer that breaks off is left
    unfinished.

    Raises:
        Unavailable: The daemon did not answer, or has too many connections.
    """

    async def relayed(path: Path) -> None:
        if scope["type"] != "websocket":
            await _request(path, scope, receive, send)
            return
        try:
            await _socket(path, scope, receive, send)
        except Unavailable:
            if await asyncio.to_thread(door.memory_full):
                raise Unavailable(_MEMORY_FULL) from None
            raise

    task = door.enter(relayed)
    await _first_of(task)
    if task.cancelled():
        raise Unavailable(_AWAY)
    task.result()


async def _request(path: Path, scope: Scope, receive: Receive, send: Send) -> None:
    answer = _Answer(scope["method"])
    # A socket and no stream: that one is closed, with what it holds of an answer, once the daemon
    # takes no more of a body.
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)  # noqa: FBT003 - its only form
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(connection, str(path))
            await loop.sock_sendall(connection, _head(scope))
            answering = asyncio.ensure_future(answer.pass_on(connection, send))
            await _first_of(answering, asyncio.ensure_future(_hear(scope, receive, connection)))
            if not answering.cancelled():
                answering.result()
        except (OSError, UpstreamError) as error:
            if not answer.begun:
                raise Unavailable(_AWAY) from error
        finally:
            answer.drop()


class _Answer:
    """A daemon's answer, as it comes."""

    def __init__(self, method: str) -> None:
        self.begun = False
        self._parser = ResponseParser()
        self._parser.expect(method)

    def drop(self) -> None:
        """Let go of the parser, which refers to us."""
        self._parser.drop()

    async def pass_on(self, connection: socket.socket, send: Send) -> None:
        """Send it to the client, no faster than that reads.

        Raises:
            OSError: It broke off, or has no status that there is.
            UpstreamError: It is no HTTP.
        """
        loop = asyncio.get_running_loop()
        while not self._parser.complete:
            data = await loop.sock_recv(connection, _PIECE)
            if data:
                self._parser.feed(data)
            elif not self._parser.end_of_file():
                raise ConnectionResetError
            await self._send(send)
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        parser = self._parser
        if parser.began and not self.begun:
            status = parser.status
            if status not in _FINAL:
                raise ConnectionResetError
            headers = [
                (name.encode("latin-1"), value.encode("latin-1"))
                for name, value in parser.headers.items()
                if name in _RETURNED and not (name == "content-length" and status in _WITHOUT_BODY)
            ]
            self.begun = True
            fields = [*headers, *_ADDED]
            await send({"type": "http.response.start", "status": status, "headers": fields})
        if body := parser.take_body():
            await send({"type": "http.response.body", "body": body, "more_body": True})


async def _hear(scope: Scope, receive: Receive, connection: socket.socket) -> None:
    """Send a request's body to the daemon; return once the client has gone."""
    loop = asyncio.get_running_loop()
    is_chunked, is_taken = b"transfer-encoding" in dict(scope["headers"]), True
    while (message := await receive())["type"] == "http.request":
        body: bytes = message.get("body", b"")
        if is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"" if message.get("more_body", False) else b"0\r\n\r\n"
        if is_taken:
            try:
                await loop.sock_sendall(connection, body)
            except OSError:
                is_taken = False  # its answer, if there is one, still comes


async def _socket(path: Path, scope: Scope, receive: Receive, send: Send) -> None:
    connecting = unix_connect(
        str(path),
        f"ws://daemon{_target(scope)}",
        additional_headers=[field for field in _fields(scope) if field[0] == "authorization"],
        compression=None,
        open_timeout=_HANDSHAKE_SECONDS,
        max_size=_LARGEST_MESSAGE,
        max_queue=1,
        ping_interval=None,  # the daemon asks us, and the server in front asks the client
        create_connection=_DaemonConnection,
    )
    try:
        inner = await connecting
    except InvalidStatus as refused:
        await _deny(refused.response, send)
        return
    except (OSError, TimeoutError, WebSocketException, EOFError, ValueError) as error:
        raise Unavailable(_AWAY) from error
    try:
        await receive()  # `websocket.connect`
        await send({"type": "websocket.accept"})
        hearing = asyncio.ensure_future(_to_client(inner, send))
        await _first_of(hearing, asyncio.ensure_future(_to_daemon(receive, inner)))
        await inner.close()
    except OSError:
        return  # the client has gone
    except asyncio.CancelledError:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSING_SECONDS):
                await send({"type": "websocket.close", "code": _GOING_AWAY})
        raise
    finally:
        inner.transport.abort()


class _DaemonConnection(ClientConnection):
    """A WebSocket to a daemon."""

    def data_received(self, data: bytes) -> None:
        """Take bytes; a daemon that sends pings and reads no answer is left."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_UNSENT:
            self.transport.abort()


async def _deny(answer: Response, send: Send) -> None:
    if answer.status_code not in _FINAL:
        raise Unavailable(_AWAY)
    fields = [(b"content-type", b"application/json"), *_ADDED]
    start = {"type": "http.response.start", "status": answer.status_code, "headers": fields}
    await send(start)
    await send({"type": "http.response.body", "body": bytes(answer.body or b"")})


async def _to_daemon(receive: Receive, inner: ClientConnection) -> None:
    while (message := await receive())["type"] == "websocket.receive":
        text = message.get("text")
        with suppress(ConnectionClosed):  # `_to_client` says why
            await inner.send(message["bytes"] if text is None else text)


async def _to_client(inner: ClientConnection, send: Send) -> None:
    with suppress(ConnectionClosed):
        async for said in inner:
            kind = "text" if isinstance(said, str) else "bytes"
            await send({"type": "websocket.send", kind: said})
    code = inner.close_code
    if code in _NEVER_SENT:
        code = _RESTARTS
    await send({"type": "websocket.close", "code": code, "reason": inner.close_reason or ""})


async def _first_of(*tasks: asyncio.Future[None]) -> None:
    """Wait until one has ended, and end the others."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _fields(scope: Scope) -> list[tuple[str, str]]:
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in scope["headers"]
        if name in _SENT
    ]


def _target(scope: Scope) -> str:
    query = scope["query_string"]
    target: bytes = scope["raw_path"] + (b"?" + query if query else b"")
    return target.decode("latin-1")


def _head(scope: Scope) -> bytes:
    fields = [("Host", "daemon"), *_fields(scope), ("Connection", "close")]
    if b"transfer-encoding" in dict(scope["headers"]):
        fields.append(("Transfer-Encoding", "chunked"))
    lines = [f"{scope['method']} {_target(scope)} HTTP/1.1", *(f"{n}: {v}" for n, v in fields)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
