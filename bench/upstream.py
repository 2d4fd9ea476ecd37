"""The upstream of the benchmark: fixed bytes for the least CPU, so that it is never the bottleneck.

    python -m bench.upstream --certificate FILE [--chunk-interval-ms 5] [--slow-interval-ms 200]

It prints `{"port": N, "tls_port": N, "slow_port": N}` and ends with its input. With `--tell` it
prints `{"lost_ns": N}` when a connection is closed in mid-stream, by the machine's monotonic clock.

A request's path tells its dialect, chat completions or messages. One for a stream (its body says
`"stream":true`) gets its chunks one write at a time, so that whatever stands between sees them one
by one, as a model would produce them. Each chunk of chat says when it was written.

The items of batches come on a path of their own and get replies of 4 KB. `GET /asked` says how many
came since it was last asked for, and when the first did: `{"count": N, "first_ns": N}`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import sys
import time
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

import uvloop

from bench.batches.bodies import ITEMS_PATH, replies
from bench.formats import ANSWERS
from bench.traffic import STAMP, STAMP_DIGITS

if TYPE_CHECKING:
    from bench.formats import Answer

_HEAD_END: Final = b"\r\n\r\n"
_STREAM: Final = b'"stream":true'
_LENGTH: Final = b"content-length:"


@dataclass(frozen=True, slots=True)
class _Reply:
    """The encoded reply of one path."""

    whole: bytes
    writes: tuple[tuple[bytes, ...], ...]
    """The writes of a stream, each split where the timestamp goes."""


def _reply(answer: Answer) -> _Reply:
    return _Reply(_whole_response(answer.whole()), _stream_writes(answer.pieces()))


def _whole_response(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def _stream_writes(pieces: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], ...]:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    first, *middle, last = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    writes = (head + first, *middle, last + b"0\r\n\r\n")
    return tuple(tuple(write.split(STAMP)) for write in writes)


_REPLIES: Final = {path.encode(): _reply(answer) for path, answer in ANSWERS.items()}
_NOT_FOUND: Final = _Reply(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", ())
_ITEMS: Final = ITEMS_PATH.encode()
_ASKED: Final = b"/asked"


@dataclass(slots=True)
class ItemCounter:
    """Counts the items of batches that arrive."""

    count: int = 0
    first_ns: int = 0
    """When the first item arrived, by the machine's monotonic clock."""

    def count_item(self) -> None:
        """Count an item that arrives now."""
        if not self.count:
            self.first_ns = time.monotonic_ns()
        self.count += 1

    def report(self) -> bytes:
        """Return the count as JSON, and reset it."""
        said = json.dumps(asdict(self)).encode()
        self.count = self.first_ns = 0
        return said


class ReplyTable:
    """The replies by path, shared by all connections."""

    def __init__(self) -> None:
        self._asked = ItemCounter()
        self._to_items = cycle(_Reply(_whole_response(body), ()) for body in replies())

    def reply_to(self, request: bytes) -> _Reply:
        """Return the answer for a request's path."""
        path = request.split(b" ", 2)[1].partition(b"?")[0]
        if path == _ITEMS:
            self._asked.count_item()
            return next(self._to_items)
        if path == _ASKED:
            return _Reply(_whole_response(self._asked.report()), ())
        return _REPLIES.get(path, _NOT_FOUND)


class Upstream(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, interval: float, reply_table: ReplyTable, *, tell: bool = False) -> None:
        """Take the seconds between two chunks, 0 for one turn of the loop; and the replies."""
        self._interval = interval
        self._reply_table = reply_table
        self._tell = tell
        self._streaming = False
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._wanted = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; a stream under way ends with it."""
        del exc
        self._transport = None
        if self._tell and self._streaming:
            print(json.dumps({"lost_ns": time.monotonic_ns()}), flush=True)

    def data_received(self, data: bytes) -> None:
        """Answer as soon as a request is whole."""
        self._buffer += data
        if not self._wanted:
            end = self._buffer.find(_HEAD_END)
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._wanted = end + len(_HEAD_END) + length
        if len(self._buffer) >= self._wanted:
            reply, streamed = self._reply_table.reply_to(self._buffer), _STREAM in self._buffer
            self._buffer, self._wanted = self._buffer[self._wanted :], 0
            if streamed and reply.writes:
                self._write(reply.writes, 0)
            elif self._transport is not None:
                self._transport.write(reply.whole)

    def _write(self, writes: tuple[tuple[bytes, ...], ...], number: int) -> None:
        if self._transport is None:
            return
        stamp = b"%0*d" % (STAMP_DIGITS, time.monotonic_ns())
        self._transport.write(stamp.join(writes[number]))
        self._streaming = number + 1 < len(writes)
        if not self._streaming:
            return
        if self._interval:
            self._loop.call_later(self._interval, self._write, writes, number + 1)
        else:
            self._loop.call_soon(self._write, writes, number + 1)


async def _serve(options: argparse.Namespace) -> None:
    loop, reply_table = asyncio.get_running_loop(), ReplyTable()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(options.certificate)

    async def listen(milliseconds: float, context: ssl.SSLContext | None = None) -> int:
        server = await loop.create_server(
            lambda: Upstream(milliseconds / 1000, reply_table, tell=options.tell),
            "127.0.0.1",
            0,
            backlog=2048,
            ssl=context,
        )
        return int(server.sockets[0].getsockname()[1])

    ports = {
        "port": await listen(options.chunk_interval_ms),
        "tls_port": await listen(options.chunk_interval_ms, tls),
        "slow_port": await listen(options.slow_interval_ms),
    }
    print(json.dumps(ports), flush=True)
    ended = asyncio.Event()
    # The parent holds the other end: when it is gone, however it went, so are we.
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m bench.upstream")
    parser.add_argument("--certificate", required=True, help="chain and key in one PEM file")
    parser.add_argument("--chunk-interval-ms", type=float, default=5.0)
    parser.add_argument("--slow-interval-ms", type=float, default=200.0)
    parser.add_argument("--tell", action="store_true", help="say when a stream is cut")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
