"""The upstream of the benchmark: fixed bytes for the least CPU, so that it is never the bottleneck.

    python -m bench.upstream FILE      the chain and the key of its certificate, in one PEM file

It prints `{"port": N, "tls_port": N, "slow_port": N}` and ends with its input.

A request's path tells its format. One for a stream (its body says `"stream":true`) gets its chunks
one write at a time, so that whatever stands between sees them one by one, as a model would produce
them. Each chunk of chat says when it was written.

The items of batches come on a path of their own and get replies of 4 KB. `GET /received` says how
many came since it was last asked: `{"count": N}`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from itertools import cycle
from typing import Final

import uvloop

from bench.formats import ANSWERS, CHUNK_MS, ITEMS_PATH, SLOW_MS, STAMP, replies

_STREAM: Final = b'"stream":true'
_LENGTH: Final = b"content-length:"


def _whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _writes(pieces: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], ...]:
    """Return the writes of a stream, each split where the timestamp goes."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    first, *middle, last = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return tuple(
        tuple(write.split(STAMP)) for write in (head + first, *middle, last + b"0\r\n\r\n")
    )


class Replies:
    """The encoded replies by path, shared by all connections; counts the items of batches."""

    def __init__(self) -> None:
        self._whole = {path.encode(): _whole(answer.whole) for path, answer in ANSWERS.items()}
        self._streams = {path.encode(): _writes(answer.pieces) for path, answer in ANSWERS.items()}
        self._items = cycle(map(_whole, replies()))
        self._count = 0

    def whole(self, path: bytes) -> bytes:
        """Return the whole reply for a path."""
        if path == ITEMS_PATH.encode():
            self._count += 1
            return next(self._items)
        if path == b"/received":
            said, self._count = self._count, 0
            return _whole(json.dumps({"count": said}).encode())
        return self._whole.get(path, b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    def stream(self, path: bytes) -> tuple[tuple[bytes, ...], ...]:
        """Return the writes of a streamed reply; none where the path has none."""
        return self._streams.get(path, ())


class Upstream(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, interval: float, replies: Replies) -> None:
        self._interval = interval
        self._replies = replies
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._wanted = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._wanted:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._wanted = end + 4 + length
        if len(self._buffer) >= self._wanted:
            request, self._buffer = self._buffer, self._buffer[self._wanted :]
            self._wanted = 0
            path = request.split(b" ", 2)[1].partition(b"?")[0]
            writes = self._replies.stream(path) if _STREAM in request else ()
            if writes:
                self._write(writes, 0)
            elif self._transport is not None:
                self._transport.write(self._replies.whole(path))

    def _write(self, writes: tuple[tuple[bytes, ...], ...], number: int) -> None:
        if self._transport is None:
            return
        stamp = b"%0*d" % (len(STAMP), time.monotonic_ns())
        self._transport.write(stamp.join(writes[number]))
        if number + 1 < len(writes):
            self._loop.call_later(self._interval, self._write, writes, number + 1)


async def _serve(certificate: str) -> None:
    loop, replies_ = asyncio.get_running_loop(), Replies()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)

    async def listen(milliseconds: float, context: ssl.SSLContext | None = None) -> int:
        server = await loop.create_server(
            lambda: Upstream(milliseconds / 1000, replies_),
            "127.0.0.1",
            0,
            backlog=2048,
            ssl=context,
        )
        return int(server.sockets[0].getsockname()[1])

    ports = {
        "port": await listen(CHUNK_MS),
        "tls_port": await listen(CHUNK_MS, tls),
        "slow_port": await listen(SLOW_MS),
    }
    print(json.dumps(ports), flush=True)
    ended = asyncio.Event()
    # The parent holds the other end: when it is gone, however it went, so are we.
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1]))
