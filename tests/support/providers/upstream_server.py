"""The server of every provider stub: has requests answered by scripts, and keeps statistics.

    client ── request ──▶ RequestHandler ──▶ Script ── bytes, pauses, ends ──▶ client

`GET /_seen` returns `RequestStats`; other requests go to the handler.
"""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import msgspec

from tests.support.providers.byte_script import Script, Step
from tests.support.providers.framing import Framing
from tests.support.providers.raw_server import Peer, RawServer

_PLAIN: Final = Framing()


@dataclass(slots=True)
class RequestStats:
    """Requests since the start; `/_` requests do not count."""

    requests: int = 0
    """Requests whose head was received."""
    connections: int = 0
    """Connections that carried at least one of them."""
    open: int = 0
    """Requests whose response is not finished."""
    cancelled: list[float] = field(default_factory=list[float])
    """When (`time.monotonic`) the peer closed each request that was still open."""
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the last request, names in lower case."""
    raw_body: bytes = b""
    """Of the last completely received request."""

    @property
    def body(self) -> Any:
        """The last body, decoded; None if it is not JSON."""
        try:
            return msgspec.json.decode(self.raw_body)
        except msgspec.DecodeError:
            return None

    def as_json(self) -> bytes:
        """Return the response of `GET /_seen`; `monotonic` is the server's clock now."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "raw_body"}
        text = self.raw_body.decode(errors="replace")
        more = {"body": self.body, "raw_body": text, "monotonic": time.monotonic()}
        return json.dumps(fields | more).encode()


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request, received to its end."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


RequestHandler = Callable[[ReceivedRequest], Script]
"""Returns the response to a request."""


@contextlib.asynccontextmanager
async def serve(
    answer: RequestHandler, *, port: int = 0, ssl_context: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[int, RequestStats]]:
    """Serve on the running loop and on 127.0.0.1; every connection is closed at the end.

    Args:
        answer: Handles each request.
        port: The TCP port; 0 takes a free one.
        ssl_context: Serves TLS with it.

    Yields:
        The port and the statistics.
    """
    seen = RequestStats()

    async def behave(peer: Peer) -> None:
        method, path, version = peer.head.decode("latin-1").partition("\r\n")[0].split(" ")
        headers = peer.fields
        counted = not path.startswith("/_")
        if counted:
            seen.requests += 1
            seen.open += 1
            connections.add(peer)
            seen.connections = len(connections)
            seen.method, seen.path, seen.headers = method, path, headers
        try:
            if headers.get("expect", "").lower() == "100-continue":
                await peer.play(b"HTTP/1.1 100 Continue\r\n\r\n")
            request = ReceivedRequest(method, path, headers, await peer.body())
            await peer.play(*_joined(reply(request, counted=counted)))
        except asyncio.CancelledError:
            if counted:
                seen.cancelled.append(time.monotonic())
            raise
        finally:
            seen.open -= counted
        if version != "HTTP/1.1" or headers.get("connection", "").lower() == "close":
            peer.transport.close()

    def reply(request: ReceivedRequest, *, counted: bool) -> Script:
        if counted:
            seen.raw_body = request.body
            return answer(request)
        return (_PLAIN.whole(200, seen.as_json()),)

    connections: set[Peer] = set()
    async with RawServer(port=port, ssl_context=ssl_context) as server:
        server.behave = behave
        yield server.port, seen


def _joined(script: Script) -> Iterator[Step]:
    """Yield the steps, consecutive bytes as one."""
    for kind, steps in groupby(script, type):
        if kind is bytes:
            yield b"".join(step for step in steps if isinstance(step, bytes))
        else:
            yield from steps
