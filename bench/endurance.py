"""An hour of traffic of good and misbehaving clients, and the gateway's memory meanwhile.

    whole, whole over TLS, streams      at a steady rate each, every reply checked to its end
    misbehaving clients                 hang up, send unknown keys, request unknown models

Each minute is a sample of the memory of all processes; the slope is that of the line through the
samples after the first sixth, in which caches fill.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from statistics import linear_regression
from typing import TYPE_CHECKING, ClassVar, Final

from bench import cpu
from bench.formats import FORMATS, chat_request
from bench.load import Load, gateway_target, load_result, start_load
from bench.report import MB
from bench.scenarios import Bench, Figure, require
from bench.servers import MODEL, TLS_MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.servers import Side

NAME: Final = "endurance"
_MEMORY: Final = "memory of all processes (PSS)"
_ANSWERED: Final = "requests answered whole, a sample"
_RATES: Final = ((MODEL, False, 40.0), (TLS_MODEL, False, 20.0), (MODEL, True, 10.0))
"""Models, whether streamed, and requests a second."""
_MISBEHAVING_RATE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Endurance:
    """Mixed traffic, and the memory meanwhile."""

    rounds: int
    """Samples."""
    seconds: float = 60.0
    """Of each."""
    name: str = NAME
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Send the traffic of one sample, all kinds at once."""
        [side] = bench.sides
        loads = [
            Load(model, int(rate * self.seconds), stream=s, concurrency=16, warmup=16, rate=rate)
            for model, s, rate in _RATES
        ]
        target, pid = gateway_target(side.gateway), side.gateway.pid
        with ExitStack() as stack:
            children = [stack.enter_context(start_load(target, load)) for load in loads]
            for child in children:
                child.send_line("go")
            asyncio.run(_misbehave(target.port, target.key, self.seconds))
            for child in children:
                load_result(child)
        sent = sum(load.requests + load.before for load in loads)
        yield Figure(side.report, _MEMORY, cpu.memory(pid) / MB, "MB")
        yield Figure(side.report, _ANSWERED, sent, "requests")
        samples = side.report.figures[_MEMORY].values
        if len(samples) == self.rounds:
            yield from self._whole(side, samples)

    def _whole(self, side: Side, samples: list[float]) -> Iterator[Figure]:
        sent, booked = sum(side.report.figures[_ANSWERED].values), side.gateway.booked()
        require(booked >= sent, f"{sent:.0f} requests were answered, {booked} are booked")
        steady = samples[len(samples) // 6 :]
        an_hour = linear_regression(range(len(steady)), steady).slope * 3600 / self.seconds
        yield Figure(side.report, "growth after the first sixth, an hour", an_hour, "MB", 1.0)
        yield Figure(side.report, "generations booked", booked, "generations")


async def _misbehave(port: int, key: str, seconds: float) -> None:
    """Misbehave in turn, each time on a connection of its own."""

    def request(used: str, model: str) -> bytes:
        body = chat_request(model, stream=True)
        head = (
            f"POST {FORMATS['chat'].path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {used}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    good = request(key, MODEL)
    actions: tuple[tuple[bytes, bytes | None], ...] = (
        (good, b" 200 "),  # hangs up in mid-stream
        (good, None),  # at once
        (good[:-100], None),  # within the request
        (request("sk-th-v1-none", MODEL), b" 401 "),
        (request(key, "bench/nothing"), b" 404 "),
    )
    total = int(_MISBEHAVING_RATE * seconds)
    for _, (sent, wanted) in zip(range(total), cycle(actions), strict=False):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(sent)
            await writer.drain()
            if wanted is not None:
                line = (await reader.read(65_536)).split(b"\r\n", 1)[0]
                require(wanted in line, f"wanted{wanted.decode()}and got {line[:40]!r}")
        finally:
            writer.transport.abort()
        await asyncio.sleep(1 / _MISBEHAVING_RATE)
