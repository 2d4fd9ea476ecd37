"""A request that the ASGI application answers, in a task of its own.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from tollhouse.api.asgi import ON_GONE, App, Message, Scope

if TYPE_CHECKING:
    from tollhouse.api.exchange import Exchange

MOST_UNTAKEN: Final = 65_536
"""Bytes of a body that wait for the application before no more are read."""
_log = structlog.get_logger(__name__)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class BodySource(Protocol):
    """The connection that a request's body comes from."""

    client: tuple[str, int] | None
    server: tuple[str, int | None] | None
    transport: asyncio.Transport
    writable: bool

    def update_reading(self) -> None:
        """Read on, or stop reading, as those who wait for the body require."""
        ...


class AsgiCall:
    """The call of the application for one request."""

    def __init__(self, app: App, exchange: Exchange, source: BodySource) -> None:
        self._app = app
        self._exchange = exchange
        self._source = source
        self._scope = _scope_of(exchange, source)
        self._body = bytearray(exchange.body)
        exchange.body = b""
        self._is_whole = exchange.received
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self.awaits_continue = exchange.headers.get(b"expect", b"").lower() == b"100-continue"
        """Whether the client has not been told yet to send the body."""
        if self._body or self._is_whole:
            self._news.set()
        exchange.on_gone = self._leave

    @property
    def is_full(self) -> bool:
        """Whether no more of the body should be read now."""
        return len(self._body) > MOST_UNTAKEN

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._body += piece
        self._news.set()

    def end(self) -> None:
        """Take notice that the body is whole."""
        self._is_whole = True
        self._news.set()

    async def run(self) -> None:
        """Call the application; what it leaves unanswered becomes a 500, or a broken connection."""
        exchange = self._exchange
        try:
            await self._app(self._scope, self._receive, self._send)
            if not exchange.ended:
                _log.error("application_left_request", method=exchange.method)
        except Exception:  # noqa: BLE001 - the edge of the request
            _log.exception("application_failed", method=exchange.method)
        finally:
            if exchange.began:
                exchange.abort()
            else:
                exchange.keep_alive = False
                text = (b"content-type", b"text/plain; charset=utf-8")
                exchange.respond(500, [text], b"Internal Server Error")

    async def _receive(self) -> Message:
        exchange = self._exchange
        if self.awaits_continue and not exchange.ended and not exchange.began:
            self._source.transport.write(_CONTINUE)
        self.awaits_continue = False
        if not exchange.ended:
            await self._news.wait()
            self._news.clear()
        if exchange.ended:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        self._source.update_reading()
        return {"type": "http.request", "body": body, "more_body": not self._is_whole}

    async def _send(self, message: Message) -> None:
        exchange = self._exchange
        if not self._source.writable and not exchange.ended:
            self._room.clear()
            exchange.on_writable = self._room.set
            await self._room.wait()
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message.get("more_body", False):
            exchange.write(message.get("body", b""))
        else:
            exchange.finish(message.get("body", b""))
            self._news.set()

    def _begin(self, message: Message) -> None:
        headers: list[tuple[bytes, bytes]] = []
        for name, value in message.get("headers", ()):
            lower = name.lower()
            if lower == b"connection" and value.lower() == b"close":
                self._exchange.keep_alive = False  # which says it in the head
            else:
                headers.append((lower, value))
        self._exchange.begin(message["status"], headers)

    def _leave(self) -> None:
        self._news.set()
        self._room.set()
        if (gone := self._scope.pop(ON_GONE, None)) is not None:
            gone()


def _scope_of(exchange: Exchange, source: BodySource) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": exchange.http_version,
        "method": exchange.method,
        "scheme": exchange.scheme,
        "path": exchange.path,
        "raw_path": exchange.raw_path,
        "query_string": exchange.query,
        "root_path": "",
        "headers": exchange.fields,
        "server": source.server,
        "client": source.client,
        "state": {},
    }
