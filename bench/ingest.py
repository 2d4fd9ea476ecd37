"""What it costs to receive a large batch: CPU and memory of gateway and child, delays of the loop.

    python -m bench.ingest [--items 50000] [--loop uvloop]

The bodies are random words, so that they compress badly. The store is a folder of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from tollhouse.batches.ingest.intake import IntakeLimits
from tollhouse.batches.ingest.receiver import Receiver
from tollhouse.storage.blobs.local import LocalBlobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
WORDS_OF_AN_ITEM = 655
PIECE = 65_536
TICK_SECONDS = 0.001
LIMITS = IntakeLimits(body_bytes=1 << 40, items=1 << 40)


def write_batch(path: Path, items: int) -> None:
    drawn = random.Random(1)
    words = ["".join(drawn.choices("etaoinshrdlu", k=drawn.randint(2, 9))) for _ in range(5_000)]
    with path.open("w") as file:
        file.write('{"endpoint":"/v1/chat/completions","model":"acme/large","requests":[')
        for number in range(items):
            text = " ".join(drawn.choices(words, k=WORDS_OF_AN_ITEM))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": 500}
            item = json.dumps({"custom_id": f"item-{number}", "body": body})
            file.write(f",{item}" if number else item)
        file.write("]}")


async def pieces_of(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece
            await asyncio.sleep(0)


async def measure_delays(delays: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        delays.append((time.perf_counter() - began - TICK_SECONDS) * 1_000)


def peak_mb(who: int) -> float:
    return resource.getrusage(who).ru_maxrss / 1_024


async def receive(folder: Path, body: Path) -> None:
    receiver = Receiver(LocalBlobs(folder / "blobs"), LIMITS)
    delays: list[float] = []
    watch = asyncio.create_task(measure_delays(delays))
    memory, wall, cpu = peak_mb(resource.RUSAGE_SELF), time.perf_counter(), time.process_time()
    received = await receiver.receive(pieces_of(body), "batches/1")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    watch.cancel()
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{received.demand.items} items, {wall:.1f} s")
    print(f"gateway: {cpu:.2f} s CPU, {peak_mb(resource.RUSAGE_SELF) - memory:.0f} MB more")
    print(
        f"child:   {child.ru_utime + child.ru_stime:.2f} s CPU, "
        f"{peak_mb(resource.RUSAGE_CHILDREN):.0f} MB"
    )
    delays.sort()
    print(f"loop:    {delays[len(delays) * 99 // 100]:.1f} ms late at the 99th percentile")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.ingest")
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--loop", choices=LOOPS, default="uvloop")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        body = folder / "batch.json"
        write_batch(body, options.items)
        with asyncio.Runner(loop_factory=LOOPS[options.loop]) as runner:
            runner.run(receive(folder, body))


if __name__ == "__main__":
    main()
