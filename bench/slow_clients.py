"""`python -m bench.slow_clients`: how long others wait beside clients that are slow, idle or many.

    load (process)   ──>  gateway  ──>  upstream
    crowd (process)  ──>

The load is a steady rate of whole requests, without the crowd and beside it, in turns. Crowds:

    idle       connections that had a reply and send nothing more
    drip       half send a head by one byte a second, half read a stream by one byte a second
    silent     clients of streams that read nothing
    streams    streams at once whose chunks come a second apart, all read
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from statistics import median
from time import sleep
from typing import Final

import uvloop

from bench.formats import FORMATS, chat_request
from bench.load import Load, Target, run_load, start_load
from bench.processes import Child
from bench.servers import MODEL, SLOW_MODEL, Gateway, start_upstream, write_config

CROWDS: Final = {"idle": 5_000, "drip": 400, "silent": 400, "streams": 2_000}
RATE: Final = 20.0
_TOGETHER: Final = 200
"""Connections that are opened at once."""
_SLOW_MS: Final = 1_000.0
"""Between two chunks of the crowd's streams, which so outlast the load."""
_BEGIN_SECONDS: Final = 5.0
"""In which the streams begin, one after the other: begun together, they would have all their
chunks together."""


def main() -> None:
    """Measure, and print a line for each crowd."""
    parser = argparse.ArgumentParser(prog="python -m bench.slow_clients", description=__doc__)
    parser.add_argument("--crowd", nargs="+", choices=CROWDS, default=list(CROWDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load takes")
    chosen = parser.parse_args()
    load = Load(MODEL, int(RATE * chosen.seconds), concurrency=8, rate=RATE)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        upstream = start_upstream(folder / "upstream", slow_ms=_SLOW_MS)
        stack.enter_context(upstream.child)
        config = write_config(folder / "bench.yaml", upstream)
        gateway = stack.enter_context(
            Gateway(folder / "data", config, authority=upstream.authority)
        )
        target = Target("gateway", gateway.pid, gateway.port, gateway.key)
        for crowd in chosen.crowd:
            alone, beside = list[float](), list[float]()
            for _ in range(chosen.rounds):
                alone.append(run_load(target, load).p99_ms)
                with _start(crowd, target):
                    beside.append(run_load(target, load).p99_ms)
            ratio = median(map(_ratio, alone, beside))
            print(
                f"{CROWDS[crowd]:5} {crowd:8} p99 {median(alone):6.1f} ms alone, "
                f"{median(beside):6.1f} ms beside, {ratio:.2f} x",
                flush=True,
            )


def _ratio(alone: float, beside: float) -> float:
    return beside / alone


def _start(crowd: str, target: Target) -> Child:
    """Start a crowd; return once all of it is there."""
    size = CROWDS[crowd]
    if crowd == "streams":
        rate = size / _BEGIN_SECONDS
        load = Load(SLOW_MODEL, size, stream=True, concurrency=size, warmup=0, rate=rate)
        child = start_load(target, load)
        child.send_line("go")
        sleep(_BEGIN_SECONDS + 1)
        return child
    command = [sys.executable, "-m", "bench.slow_clients", "--be", crowd, str(size)]
    child = Child("the crowd", [*command, str(target.port), target.key], seconds=120.0)
    try:
        child.receive_object()
    except BaseException:
        child.stop()
        raise
    return child


# The process of a crowd


async def _be(crowd: str, size: int, port: int, key: str) -> None:
    """Be a crowd until the input ends."""
    body = chat_request(MODEL, stream=crowd != "idle")
    request = (
        f"POST {FORMATS['chat'].path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: "
        f"application/json\r\nauthorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body
    tasks: list[asyncio.Task[None]] = []
    for begin in range(0, size, _TOGETHER):
        opened = await asyncio.gather(
            *(
                asyncio.open_connection("127.0.0.1", port, limit=1)
                for _ in range(min(_TOGETHER, size - begin))
            )
        )
        for number, (reader, writer) in enumerate(opened):
            sends_slowly = crowd == "drip" and number % 2 == 0
            if not sends_slowly:
                writer.write(request)
            if crowd == "idle":
                await reader.read(65_536)
            elif crowd == "silent":
                writer.transport.pause_reading()  # type: ignore[attr-defined]
            elif crowd == "drip":
                slow = _send(writer, request) if sends_slowly else _read(reader)
                tasks.append(asyncio.create_task(slow))
            tasks.append(asyncio.create_task(_hold(writer)))
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.to_thread(sys.stdin.read)


async def _hold(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        await writer.wait_closed()


async def _send(writer: asyncio.StreamWriter, request: bytes) -> None:
    with suppress(OSError):
        for at in range(len(request)):
            writer.write(request[at : at + 1])
            await asyncio.sleep(1)


async def _read(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1):
            await asyncio.sleep(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_be(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]))
    else:
        main()
