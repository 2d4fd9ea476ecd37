"""What a client feels of others: of connections that do nothing, trickle, or stream in a crowd.

    python -m bench.neighbours PORT COUNT SECONDS      open connections; send a byte of a head on
                                                       each every so many seconds, or none if 0

It prints `{"open": N}`, and ends with its input. A connection that is closed is opened again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import sleep
from typing import TYPE_CHECKING, ClassVar, Final

import uvloop

from bench.formats import CHUNKS, SLOW_MS
from bench.load import Load, gateway_target, run_load, start_load
from bench.processes import Child
from bench.scenarios import Bench, Figure
from bench.servers import MODEL, SLOW_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

_AIM: Final = 2.0
_STREAM_SECONDS: Final = CHUNKS * SLOW_MS / 1000
_HEAD: Final = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: " + b"a" * 4_000


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The slowest of a hundred requests beside each, over those of a quiet gateway."""

    rounds: int = 3
    idle: int = 5_000
    slow: int = 500
    streams: int = 2_000
    requests: int = 1_000
    rate: float = 100.0
    name: str = "neighbours"
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure all gateways."""
        load = Load(MODEL, self.requests, concurrency=32, rate=self.rate)
        for side in bench.in_turns():
            # Not counted, since the streams that are left over are not either.
            target, report = replace(gateway_target(side.gateway), gateway=None), side.report
            alone = run_load(target, load).p99_ms
            yield Figure(report, "p99 alone", alone, "ms")
            beside = {
                f"{self.idle:,} idle connections": (self.idle, 0.0),
                f"{self.slow:,} clients of a byte a second": (self.slow, 1.0),
            }
            for name, (count, seconds) in beside.items():
                command = [sys.executable, "-m", "bench.neighbours", str(target.port)]
                with Child("the neighbours", [*command, str(count), str(seconds)]) as child:
                    child.receive_object(60.0)
                    p99 = run_load(target, load).p99_ms
                yield Figure(report, f"p99 beside {name}", p99, "ms")
                yield Figure(report, f"p99 beside {name}, over alone", p99 / alone, "x", _AIM)
            with ExitStack() as stack:
                # One after the other: so many that begin at once would be a stampede, and end as
                # one. More than last as long as the load: what is left over is not waited for.
                crowd = Load(
                    SLOW_MODEL,
                    20 * self.streams,
                    stream=True,
                    concurrency=self.streams,
                    warmup=0,
                    rate=self.streams / _STREAM_SECONDS,
                )
                streams = stack.enter_context(start_load(target, crowd))
                streams.send_line("go")
                sleep(1.5 * _STREAM_SECONDS)
                p99 = run_load(target, load).p99_ms
            name = f"p99 beside {self.streams:,} streams"
            yield Figure(report, name, p99, "ms")
            yield Figure(report, f"{name}, over alone", p99 / alone, "x", _AIM)


class _Neighbour(asyncio.Protocol):
    """A connection that sends a byte of a head now and then."""

    def __init__(self, port: int, seconds: float) -> None:
        self._port = port
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._seconds:
            self._loop.call_later(self._seconds, self._send)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._loop.create_task(_open(self._port, self._seconds))

    def _send(self) -> None:
        if not self._transport.is_closing() and self._sent < len(_HEAD):
            self._transport.write(_HEAD[self._sent : self._sent + 1])  # type: ignore[attr-defined]
            self._sent += 1
            self._loop.call_later(self._seconds, self._send)


async def _open(port: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(lambda: _Neighbour(port, seconds), "127.0.0.1", port)
    except OSError:
        loop.call_later(1.0, lambda: loop.create_task(_open(port, seconds)))


async def _run(port: int, count: int, seconds: float) -> None:
    for _ in range(count):
        await _open(port, seconds)
    print(json.dumps({"open": count}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
