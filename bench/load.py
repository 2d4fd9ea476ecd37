"""The load: keep-alive HTTP/1.1 connections that send one request after the other.

    python -m bench.load --port N --requests N [--format messages] [--stream] ...

    parent                      load
                                connects, sends the warm-up requests
             <── {"ready": true}
    "go"     ──>                sends the measured requests
             <── {"requests": ...}

Every reply is checked to its last byte: a server that cuts or invents does not look fast. With a
rate, requests begin when their time has come, and a latency counts from then, so that a server that
stalls cannot hide it by being asked less (coordinated omission). With `--each` it goes on until a
further line comes, and says when each request was due and how long it took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

import httptools
import uvloop

from bench.formats import FORMATS
from bench.statistic import percentile
from bench.traffic import Truncated, stamps

if TYPE_CHECKING:
    from collections.abc import Callable

_OK = 200


@dataclass(slots=True)
class Plan:
    """What to send, and the results so far."""

    request: bytes
    check: Callable[[bytes], None]
    rate: float = 0.0
    stream: bool = False
    left: int = 0
    running: int = 0
    good: int = 0
    pieces: int = 0
    """Reads that brought bytes: tells whether streams still came chunk by chunk."""
    failures: Counter[str] = field(default_factory=Counter[str])
    latencies: list[float] = field(default_factory=list[float])
    dues: list[float] = field(default_factory=list[float])
    """When the request of each latency was due."""
    lags: list[float] = field(default_factory=list[float])
    """From the write of a chunk to its arrival, in seconds."""
    idle: deque[Connection] = field(default_factory=deque["Connection"])
    """Connections that wait for a request's time, where there is a rate."""
    finished: asyncio.Future[None] | None = None

    def take(self) -> bool:
        """Take one of the remaining requests."""
        if not self.left:
            return False
        self.left -= 1
        self.running += 1
        return True

    def end(self, failure: str | None) -> None:
        """Count a request that ended; the last one ends the phase."""
        self.running -= 1
        if failure is None:
            self.good += 1
        else:
            self.failures[failure] += 1
        self._finish()

    def stop(self) -> None:
        """Send none of the remaining requests."""
        self.left = 0
        self._finish()

    def _finish(self) -> None:
        if not self.left and not self.running and self.finished and not self.finished.done():
            self.finished.set_result(None)


class Connection(asyncio.Protocol):
    """One connection, never with two requests at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._body: list[bytes] = []
        self._began = 0.0
        self._busy = False

    def start(self, due: float | None = None) -> None:
        """Send the next request, if one is left; its latency counts from when it was due."""
        if self._busy or not self._plan.take():
            return
        if self._transport is None or self._transport.is_closing():
            self._plan.end("the connection was closed between two requests")
            return
        self._busy = True
        self._began = perf_counter() if due is None else due
        self._transport.write(self._plan.request)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a reply that was cut off."""
        self._transport = None
        if self._busy:
            self._end(f"the connection was lost ({type(exc).__name__})" if exc else "cut short")

    def data_received(self, data: bytes) -> None:
        """Take bytes of a reply."""
        self._plan.pieces += 1
        if self._plan.stream:
            now = time.monotonic_ns()
            self._plan.lags += [(now - stamp) / 1e9 for stamp in stamps(data)]
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"no HTTP: {error}")
            if self._transport is not None:
                self._transport.abort()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Check the reply, then send the next request."""
        body = b"".join(self._body)
        self._body.clear()
        status = self._parser.get_status_code()
        failure: str | None = None
        if status == _OK:
            self._plan.latencies.append(perf_counter() - self._began)
            self._plan.dues.append(self._began)
            try:
                self._plan.check(body)
            except Truncated as error:
                failure = str(error)
        else:
            failure = f"status {status}: {body[:200].decode('utf-8', 'replace')}"
        self._end(failure)
        if self._plan.rate:
            self._plan.idle.append(self)
        else:
            self.start()

    def _end(self, failure: str | None) -> None:
        if self._busy:
            self._busy = False
            self._plan.end(failure)


def _request(options: argparse.Namespace) -> bytes:
    spoken = FORMATS[options.format]
    body = spoken.request(options.model, stream=options.stream)
    head = (
        f"POST {options.prefix}{spoken.path} HTTP/1.1\r\n"
        f"host: 127.0.0.1:{options.port}\r\n"
        f"authorization: Bearer {options.key}\r\n"
        "content-type: application/json\r\n"
        "accept: application/json\r\n"
        "user-agent: tollhouse-bench\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _begin(plan: Plan, connections: list[Connection]) -> None:
    """Begin requests: at once on every connection, or each when its time has come."""
    if not plan.rate:
        for connection in connections:
            connection.start()
        return
    plan.idle.extend(connections)
    began = perf_counter()
    for number in range(plan.left):
        due = began + number / plan.rate
        await asyncio.sleep(due - perf_counter())
        if not plan.left:
            return
        while not plan.idle:
            await asyncio.sleep(0.0005)
        plan.idle.popleft().start(due)


async def _phase(plan: Plan, connections: list[Connection], requests: int, seconds: float) -> None:
    if not requests:
        return
    plan.left = requests
    plan.good = plan.pieces = 0
    plan.latencies.clear()
    plan.dues.clear()
    plan.lags.clear()
    plan.idle.clear()
    plan.finished = asyncio.get_running_loop().create_future()
    try:
        async with asyncio.timeout(seconds):
            await _begin(plan, connections)
            await plan.finished
    except TimeoutError:
        plan.failures["no reply in time"] += plan.left + plan.running
        plan.left = 0


async def _run(options: argparse.Namespace) -> None:
    spoken = FORMATS[options.format]
    check = spoken.check_stream if options.stream else spoken.check_whole
    loop = asyncio.get_running_loop()
    checked = partial(check, priced=options.priced)
    plan = Plan(_request(options), checked, rate=options.rate, stream=options.stream)
    connections: list[Connection] = []
    for _ in range(options.concurrency):
        _, connection = await loop.create_connection(
            lambda: Connection(plan), "127.0.0.1", options.port
        )
        connections.append(connection)
    await _phase(plan, connections, options.warmup, options.seconds)
    print(json.dumps({"ready": True}), flush=True)
    # Nothing else runs on this loop now; an empty line is a parent that is gone.
    if not sys.stdin.readline():
        return
    if options.each:
        loop.add_reader(sys.stdin, plan.stop)
    began = perf_counter()
    await _phase(plan, connections, options.requests, options.seconds)
    result: dict[str, object] = {
        "requests": plan.good,
        "seconds": perf_counter() - began,
        "pieces": plan.pieces,
        "p50_ms": percentile(plan.latencies, 50) * 1000,
        "p99_ms": percentile(plan.latencies, 99) * 1000,
        "lag_p50_ms": percentile(plan.lags, 50) * 1000,
        "lag_p99_ms": percentile(plan.lags, 99) * 1000,
        "failures": dict(plan.failures.most_common(5)),
    }
    if options.each:
        result["each"] = list(zip(plan.dues, plan.latencies, strict=True))
    print(json.dumps(result), flush=True)


def main() -> None:
    """Run the load that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m bench.load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--prefix", default="", help="what stands before the path")
    parser.add_argument("--format", choices=FORMATS, default="chat", help="what is spoken")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="none")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--priced", action="store_true", help="a reply must say its cost")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.0, help="requests begun each second")
    parser.add_argument("--each", action="store_true", help="until told to stop; say each latency")
    parser.add_argument("--seconds", type=float, default=240.0, help="the most that a phase takes")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(options))


if __name__ == "__main__":
    main()
