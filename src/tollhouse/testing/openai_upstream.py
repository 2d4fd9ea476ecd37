"""A stand-in for OpenAI: chat completions and models, and every way in which they go wrong.

    $ python -m tollhouse.testing.openai_upstream --port 0
    {"port": 41223}

`POST /v1/chat/completions` whole and streamed, `GET /v1/models`, both as OpenAI publishes them,
`stream_options.include_usage` included. The model's name chooses what happens:

    echo, large-2026      repeats the last user message; a token is a word; max_tokens is honoured
    fixed                 a precomputed reply of 1 KB, or 50 pieces in one write; for benchmarks
    no-usage, zero-usage  echo without usage (asked for or not), or with zeros
    cached                echo; usage 2048 prompt (1920 cached), 300 completion (256 reasoning)
    tools                 calls the first tool of the request; echoes the result of a tool
    huge-event[:<n>]      one event with n bytes of text, 1 MiB by default
    slow-head:<s>         echo after s seconds
    slow-chunks:<ms>      50 pieces with so long a pause after each; 0 is one write for each piece
    drip:<ms>             echo, one byte of the body in each chunk (streamed always)
    status:<code>[:retry=<s>]  an error in OpenAI's shape, with Retry-After
    garbage               200, but not JSON
    html-502              502 from a proxy in front
    cut:<n>:eof           after n bytes of a chunked body the connection ends
    cut:<n>:short         the same in a body with Content-Length
    cut:<n>:rst           the same with a TCP reset
    hang                  never answers
    error-in-stream       an error event after three events (whole: 500)
    duplicate-done        two [DONE]
    no-done               a finish_reason, then a clean end without [DONE]
    no-finish             a clean end without finish_reason and [DONE]
    comments, crlf        SSE comments between the events; CRLF line ends

`GET /_seen` tells what arrived (`Seen`), `POST /_reset` forgets it. In a test on the running loop:

    async with start_openai_upstream() as openai:
        ... openai.base_url, openai.seen.requests ...
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tollhouse.testing import openai_replies as replies
from tollhouse.testing.openai_behaviours import BEHAVIOURS, chat_completion
from tollhouse.testing.openai_embeddings import embeddings
from tollhouse.testing.script import End, Pause, Script

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

_HEAD_END: Final = b"\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


_MODEL_ROUTES: Final = {
    ("POST", "/v1/chat/completions"): chat_completion,
    ("POST", "/v1/embeddings"): embeddings,
}


@dataclass(slots=True)
class Seen:
    """What the server got since the start or the last reset. `/_` requests do not count."""

    requests: int = 0
    """Requests whose head arrived."""
    connections: int = 0
    """Connections that carried at least one of them."""
    open: int = 0
    """Requests that are not answered to the end yet."""
    cancelled: list[float] = field(default_factory=list[float])
    """When (`time.monotonic`) the peer closed each request that was still open."""
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the last request, names in lower case."""
    raw_body: bytes = b""
    """Of the last request that arrived whole."""

    @property
    def body(self) -> Any:  # noqa: ANN401 - whatever JSON the peer sent
        """The last body, decoded; None where it is no JSON."""
        try:
            return msgspec.json.decode(self.raw_body)
        except msgspec.DecodeError:
            return None

    def reset(self) -> None:
        """Forget everything but the requests that are still open."""
        self.requests = self.connections = 0
        self.cancelled.clear()
        self.method = self.path = ""
        self.headers = {}
        self.raw_body = b""

    def as_json(self) -> bytes:
        """Return the reply of `GET /_seen`; `monotonic` is the server's clock now."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "raw_body"}
        text = self.raw_body.decode(errors="replace")
        more = {"body": self.body, "raw_body": text, "monotonic": time.monotonic()}
        return json.dumps(fields | more).encode()


class _Request:
    """A request that is arriving: the head is here, the body may still come."""

    __slots__ = ("body", "chunked", "headers", "keep_alive", "left", "method", "path", "quiet")

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, version = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        self.chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self.left = int(self.headers.get("content-length", "0"))
        self.keep_alive = (
            version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        )
        self.quiet = self.path.startswith("/_")
        self.body = b""

    def take(self, buffer: bytearray) -> bool:
        """Move the body out of the buffer; return whether it is complete."""
        if self.chunked:
            return self._take_chunks(buffer)
        if len(buffer) < self.left:
            return False
        self.body = bytes(buffer[: self.left])
        del buffer[: self.left]
        return True

    def _take_chunks(self, buffer: bytearray) -> bool:
        while (end := buffer.find(b"\r\n")) >= 0:
            size = int(buffer[:end].split(b";")[0], 16)
            if len(buffer) < end + 2 + size + 2:
                return False
            self.body += buffer[end + 2 : end + 2 + size]
            del buffer[: end + 2 + size + 2]
            if size == 0:
                return True
        return False


class _Connection(asyncio.Protocol):
    """One connection: reads a request, plays the script of its reply, reads the next."""

    def __init__(self, seen: Seen, live: set[asyncio.Transport]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seen = seen
        self._live = live
        self._buffer = bytearray()
        self._request: _Request | None = None
        self._script: Script = ()
        self._playing = False
        self._counted = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._live.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note a request that was cancelled."""
        del exc
        self._live.discard(self._transport)
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None and not self._request.quiet:
            self._seen.open -= 1
            self._seen.cancelled.append(time.monotonic())
        self._request = None

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        self._buffer += data
        self._advance()

    def _advance(self) -> None:
        """Read requests and answer them, until something has to be waited for."""
        while not self._playing and not self._transport.is_closing():
            if self._request is None and not self._take_head():
                return
            if self._request is None or not self._request.take(self._buffer):
                return
            self._playing = True
            self._script = self._answer(self._request)
            self._play()

    def _take_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return False
        try:
            request = self._request = _Request(bytes(self._buffer[:end]))
        except ValueError:
            self._transport.write(replies.error(400, extra="Connection: close\r\n"))
            self._transport.close()
            return False
        del self._buffer[: end + len(_HEAD_END)]
        if not request.quiet:
            self._count(request)
        if request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _count(self, request: _Request) -> None:
        seen = self._seen
        seen.requests += 1
        seen.open += 1
        seen.connections += not self._counted
        seen.method, seen.path, seen.headers = request.method, request.path, request.headers
        self._counted = True

    def _answer(self, request: _Request) -> Script:
        route = (request.method, request.path.partition("?")[0])
        if not request.quiet:
            self._seen.raw_body = request.body
        if route in _MODEL_ROUTES:
            try:
                body = msgspec.json.decode(request.body)
            except msgspec.DecodeError:
                body = None
            return _MODEL_ROUTES[route](body)
        if route == ("GET", "/v1/models"):
            return (replies.model_list(BEHAVIOURS),)
        if route == ("GET", "/_seen"):
            return (replies.whole(200, self._seen.as_json()),)
        if route == ("POST", "/_reset"):
            self._seen.reset()
            return (replies.whole(200, b"{}"),)
        return (replies.unknown_url(request.method, request.path),)

    def _play(self) -> None:
        """Write the script up to its next pause, or to its end."""
        self._timer = None
        written: list[bytes] = []
        for at, step in enumerate(self._script):
            if isinstance(step, bytes):
                written.append(step)
                continue
            self._transport.write(b"".join(written))
            if isinstance(step, Pause):
                self._script = self._script[at + 1 :]
                self._timer = self._loop.call_later(step.seconds, self._play)
            elif step is not End.HANG:
                self._end()
                self._close(reset=step is End.RST)
            return
        self._transport.write(b"".join(written))
        self._end()

    def _end(self) -> None:
        """Be done with the request; the next one may have arrived already."""
        request, self._request = self._request, None
        self._playing = False
        if request is None:
            return
        if not request.quiet:
            self._seen.open -= 1
        if not request.keep_alive:
            self._transport.close()
        elif self._timer is None and self._buffer:
            self._loop.call_soon(self._advance)

    def _close(self, *, reset: bool) -> None:
        if not reset:
            self._transport.close()
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()


@dataclass(frozen=True, slots=True)
class OpenAIUpstream:
    """A running stand-in."""

    port: int
    scheme: str
    seen: Seen

    @property
    def url(self) -> str:
        """The root, for `/_seen`."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """What a client of OpenAI takes as its base URL: the root with `/v1`."""
        return f"{self.url}/v1"


@contextlib.asynccontextmanager
async def start_openai_upstream(
    *, port: int = 0, ssl_context: ssl.SSLContext | None = None
) -> AsyncGenerator[OpenAIUpstream]:
    """Serve on the running loop and on 127.0.0.1; every connection is closed at the end.

    Args:
        port: The TCP port; 0 takes a free one.
        ssl_context: Serves TLS with it.
    """
    seen = Seen()
    live: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(seen, live), "127.0.0.1", port, ssl=ssl_context, backlog=4096
    )
    try:
        scheme = "http" if ssl_context is None else "https"
        yield OpenAIUpstream(server.sockets[0].getsockname()[1], scheme, seen)
    finally:
        server.close()
        for transport in tuple(live):
            transport.abort()
        await server.wait_closed()


async def _serve(port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with start_openai_upstream(port=port) as upstream:
        sys.stdout.write(json.dumps({"port": upstream.port}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="A stand-in for OpenAI's chat completions.")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 is any")
    port: int = parser.parse_args().port
    try:
        import uvloop  # noqa: PLC0415 - optional: a benchmark wants it, Windows has none
    except ImportError:
        asyncio.run(_serve(port))
    else:
        uvloop.run(_serve(port))


if __name__ == "__main__":
    main()
