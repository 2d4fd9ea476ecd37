"""Results as bytes, in no more memory than a few of them take: in their batch, or line by line."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.batches.chunks import unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tollhouse.batches.types import Part
    from tollhouse.storage.blobs.port import Blobs

_PIECE = 256 * 1024


async def with_results(head: bytes, parts: Iterable[Part], blobs: Blobs) -> AsyncIterator[bytes]:
    """Give a JSON object with `results` as its last field, piece by piece.

    Args:
        head: The object with its other fields; at least one.
        parts: Where its results are.
        blobs: The store of them.

    Raises:
        BlobMissing: A part is gone: the batch was deleted meanwhile.
        BlobsUnavailable: They cannot be read now.
        Damaged: A part is not as it was written.
    """
    yield head.removesuffix(b"}") + b',"results":['
    comma = b""
    for part in parts:
        data = await blobs.get(part.key)
        lines = await asyncio.to_thread(_joined, data)
        yield comma
        for start in range(0, len(lines), _PIECE):
            yield lines[start : start + _PIECE]
        comma = b","
    yield b"]}"


async def as_lines(parts: Iterable[Part], blobs: Blobs) -> AsyncIterator[bytes]:
    """Give results, a line of JSON each, piece by piece.

    Args:
        parts: Where they are.
        blobs: The store of them.

    Raises:
        BlobMissing: A part is gone: the batch was deleted meanwhile.
        BlobsUnavailable: They cannot be read now.
        Damaged: A part is not as it was written.
    """
    for part in parts:
        lines = await asyncio.to_thread(unpack, await blobs.get(part.key))
        for start in range(0, len(lines), _PIECE):
            yield lines[start : start + _PIECE]


def _joined(data: bytes) -> bytes:
    """Return a chunk's lines with commas between them."""
    return unpack(data).removesuffix(b"\n").replace(b"\n", b",")
