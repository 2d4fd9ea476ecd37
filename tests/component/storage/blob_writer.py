"""Writes many blobs, to be killed meanwhile; prints the key of each durable one.

    blob_writer.py <root> [<call> <number>]

With a call of `os`, it kills itself at the so-manieth one: right before it, or half through what
it writes.
"""

import asyncio
import hashlib
import os
import random
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from tollhouse.storage.blobs import LocalBlobs

LARGEST = 300_000
BLOBS = 200
"""Of each writer: far more than any kill waits for, so that one that never comes ends as well."""


def content(key: str) -> bytes:
    """Return the one content that the blob of this key may have."""
    source = random.Random(key)
    body = source.randbytes(source.randint(1, LARGEST))
    return hashlib.sha256(body).digest() + body


def kill_at(call: str, number: int) -> None:
    original, calls = getattr(os, call), count(1)

    def deadly(*arguments: Any) -> Any:
        if next(calls) == number:
            if call == "write":
                original(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments)

    setattr(os, call, deadly)


async def write(root: Path) -> None:
    blobs = LocalBlobs(root)
    print("ready", flush=True)  # noqa: T201 - what the test reads
    await asyncio.gather(*(put_many(blobs, writer) for writer in range(3)))


async def put_many(blobs: LocalBlobs, writer: int) -> None:
    for number in range(BLOBS):
        key = f"batches/{writer}-{os.getpid()}/{number // 5}/{number:05}"
        await blobs.put(key, content(key))
        sys.stdout.write(f"{key}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        kill_at(sys.argv[2], int(sys.argv[3]))
    asyncio.run(write(Path(sys.argv[1])))
