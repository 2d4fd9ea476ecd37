"""The load: keep-alive HTTP/1.1 connections that send one request after the other.

    python -m bench.load PORT KEY PREFIX LOAD      the load as JSON

    parent                      load
                                connects, sends the warm-up requests
             <── {"ready": true}
    "go"     ──>                sends the measured requests
             <── {"requests": ...}

Every reply is checked to its last byte: a server that cuts or invents does not look fast. With a
rate, requests begin when their time has come, and a latency counts from then, so that a server that
stalls cannot hide it by being asked less (coordinated omission). With `each` it goes on until a
further line comes, and says when each request was due and how long it took.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import httptools
import msgspec
import uvloop

from bench import cpu
from bench.formats import FORMATS, Truncated, stamps, with_question
from bench.processes import BenchError, Child
from bench.report import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from bench.servers import Gateway


_LONGEST_SECONDS: Final = 240.0
"""Of a phase."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, and how."""

    model: str
    requests: int
    format: str = "chat"
    stream: bool = False
    concurrency: int = 32
    warmup: int | None = None
    """How many requests go before the measured ones; each connection's second unless given."""
    rate: float = 0.0
    """Requests begun each second, whatever becomes of those before; 0 for one after the other."""
    each: bool = False
    """Whether it goes on until a further line comes, and says each latency."""
    prompt_bytes: int = 0
    """How long the question is; 0 for the usual 2 KB."""

    @property
    def before(self) -> int:
        """How many requests precede the measured ones: every connection is used."""
        return 2 * self.concurrency if self.warmup is None else self.warmup


@dataclass(frozen=True, slots=True)
class Target:
    """A server that a load is sent to."""

    name: str
    pid: int
    port: int
    key: str = ""
    """The gateway's, or more with commas between; others know none, and say no cost."""
    prefix: str = ""
    """What stands before the path."""
    gateway: Gateway | None = None
    """Counts what it is sent, and is waited for until it has booked that."""

    def settle(self, sent: int) -> None:
        """Return once so many further requests have cost all that they cost."""
        if self.gateway is not None:
            self.gateway.sent += sent
            self.gateway.wait_until_booked()


@dataclass(frozen=True, slots=True)
class Round:
    """The cost of one load on one server."""

    microseconds: float
    """CPU time of the measured process and its descendants for one request."""
    main: float
    """That of its main thread."""
    per_second: float
    p50_ms: float
    p99_ms: float
    lag_p99_ms: float
    """From the upstream's write of a chunk to the client's read; 0 where no chunk has its time."""


def gateway_target(gateway: Gateway) -> Target:
    """Return the gateway as a target."""
    return Target("gateway", gateway.pid, gateway.port, gateway.key, gateway=gateway)


@contextmanager
def start_load(target: Target, load: Load) -> Generator[Child]:
    """Start a load, warm up with it, and have it ready to go in the block."""
    arguments = [str(target.port), target.key, target.prefix, msgspec.json.encode(load).decode()]
    with Child(
        "the load", [sys.executable, "-m", "bench.load", *arguments], seconds=300.0
    ) as child:
        child.receive_object()
        yield child


def load_result(load: Child) -> dict[str, Any]:
    """Wait for a load to end and return what it says."""
    said = load.receive_object()
    if said["failures"]:
        raise BenchError(f"replies were wrong: {said['failures']}")
    return said


def run_load(target: Target, load: Load) -> Round:
    """Send one load and return what it cost the target."""
    with start_load(target, load) as child:
        target.settle(load.before)
        before = cpu.read(target.pid)
        child.send_line("go")
        said = load_result(child)
        target.settle(load.requests)
        used = cpu.cpu_time(before, cpu.read(target.pid))
    a_request = 1e6 / said["requests"]
    return Round(
        used.seconds * a_request,
        used.main * a_request,
        said["requests"] / said["seconds"],
        *(said[name] for name in ("p50_ms", "p99_ms", "lag_p99_ms")),
    )


# The process that sends


@dataclass(slots=True)
class Plan:
    """What to send, and the results so far."""

    requests: Iterator[bytes]
    check: Callable[[bytes], None]
    rate: float = 0.0
    stream: bool = False
    left: int = 0
    running: int = 0
    good: int = 0
    failures: Counter[str] = field(default_factory=Counter[str])
    latencies: list[float] = field(default_factory=list[float])
    dues: list[float] = field(default_factory=list[float])
    """When the request of each latency was due."""
    lags: list[float] = field(default_factory=list[float])
    """From the write of a chunk to its arrival, in seconds."""
    idle: deque[Connection] = field(default_factory=deque["Connection"])
    """Connections that wait for a request's time, where there is a rate."""
    finished: asyncio.Future[None] | None = None

    def begin(self, requests: int) -> asyncio.Future[None]:
        """Begin a phase of so many requests; the result is done at its end."""
        self.left, self.good = requests, 0
        for each in (self.latencies, self.dues, self.lags, self.idle):
            each.clear()
        self.finished = asyncio.get_running_loop().create_future()
        return self.finished

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
        self._transport.write(next(self._plan.requests))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._end(f"the connection was lost ({type(exc).__name__})" if exc else "cut short")

    def data_received(self, data: bytes) -> None:
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
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Check the reply, then send the next request."""
        body = b"".join(self._body)
        self._body.clear()
        failure: str | None = None
        if (status := self._parser.get_status_code()) == 200:
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
    finished = plan.begin(requests)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _begin(plan, connections)
            await finished
    if not finished.done():
        plan.failures["no reply in time"] += plan.left + plan.running
        plan.left = 0


async def _run(port: int, key: str, prefix: str, load: Load) -> None:
    spoken = FORMATS[load.format]
    body = with_question(spoken.request(load.model, stream=load.stream), load.prompt_bytes)
    heads = [
        f"POST {prefix}{spoken.path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"authorization: Bearer {each or 'none'}\r\ncontent-type: application/json\r\n"
        f"accept: application/json\r\nuser-agent: bench\r\ncontent-length: {len(body)}\r\n\r\n"
        for each in key.split(",")
    ]
    check = partial(spoken.check, stream=load.stream, priced=bool(key))
    requests = cycle([head.encode() + body for head in heads])
    plan = Plan(requests, check, rate=load.rate, stream=load.stream)
    loop = asyncio.get_running_loop()
    connections = [
        (await loop.create_connection(lambda: Connection(plan), "127.0.0.1", port))[1]
        for _ in range(load.concurrency)
    ]
    await _phase(plan, connections, load.before, _LONGEST_SECONDS)
    print(json.dumps({"ready": True}), flush=True)
    # Nothing else runs on this loop now; an empty line is a parent that is gone.
    if not sys.stdin.readline():
        return
    if load.each:
        loop.add_reader(sys.stdin, plan.stop)
    began = perf_counter()
    await _phase(plan, connections, load.requests, _LONGEST_SECONDS)
    result: dict[str, object] = {
        "requests": plan.good,
        "seconds": perf_counter() - began,
        "p50_ms": percentile(plan.latencies, 50) * 1000,
        "p99_ms": percentile(plan.latencies, 99) * 1000,
        "lag_p99_ms": percentile(plan.lags, 99) * 1000,
        "failures": dict(plan.failures.most_common(5)),
    }
    if load.each:
        result["each"] = list(zip(plan.dues, plan.latencies, strict=True))
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        asked = msgspec.json.decode(sys.argv[4], type=Load)
        runner.run(_run(int(sys.argv[1]), sys.argv[2], sys.argv[3], asked))
