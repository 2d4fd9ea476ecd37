"""A daemon that streams timestamps: `python -m bench.interns.timestamp_daemon SOCKET`.

A prompt `200 5` asks for 200 pieces of text, 5 ms apart; each is the moment at which it was
written, in nanoseconds of the clock that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter_ns
from typing import Final

_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: close\r\n\r\n"
)
_STARTED: Final = '{"run": "r", "input": "x", "approval_mode": "self-drive", "model": "a/b"}'
_ENDED: Final = '{"run": "r", "outcome": "completed", "usage": null}'


def _event(number: int, kind: str, data: str) -> bytes:
    told = f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(told), told)


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    asked = json.loads(await reader.readexactly(length))["input"].split()
    pieces, seconds = int(asked[0]), float(asked[1]) / 1_000
    writer.write(_HEAD + _event(1, "run.started", _STARTED))
    for number in range(2, pieces + 2):
        text = f'{{"run": "r", "text": "{perf_counter_ns():020d}"}}'
        writer.write(_event(number, "text", text))
        await writer.drain()
        await asyncio.sleep(seconds)
    writer.write(_event(pieces + 2, "run.ended", _ENDED) + b"0\r\n\r\n")
    await writer.drain()
    writer.close()


async def _serve(path: str) -> None:
    async with await asyncio.start_unix_server(_talk, path):
        print("{}", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
