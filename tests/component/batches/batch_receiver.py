"""Receives a batch that never ends, to be killed meanwhile; prints what it does.

    batch_receiver.py waiting | writing

`waiting`: the sender stops in the middle. `writing`: the store takes the first chunk for ever, so
that the child has more to say than anybody takes.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from tests.support.child_processes import own_children
from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.batches import BatchLimits, BatchReceiver
from tests.unit.batches.ingest.bodies import in_pieces, items, submitted


async def never_ending(body: bytes) -> AsyncIterator[bytes]:
    async for piece in in_pieces(body):
        yield piece
    await asyncio.Event().wait()


async def receive(how: str) -> None:
    blobs = MemoryBlobs()
    if how == "writing":
        blobs.may_put.clear()
    body = submitted(*items(4_000))[:-1]
    receiving = BatchReceiver(blobs, BatchLimits()).receive(never_ending(body), "batches/1")
    task = asyncio.create_task(receiving)
    await blobs.has_put.wait()
    print(*own_children(), flush=True)  # noqa: T201 - what the test reads
    await task


if __name__ == "__main__":
    asyncio.run(receive(sys.argv[1]))
