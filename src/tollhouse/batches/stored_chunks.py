"""How chunks are stored: raw while their batch is open, and compressed some time later.

    input/00003.jsonl ──> input/00003.jsonl.zst

The compressed file is durable before the raw one is deleted. So whoever finds the raw one missing
finds the other, and a chunk that a kill left in both forms is whole in each. Chunks of earlier
versions were compressed at once; they are read in the same way.

Source: RFC 8878 (zstd)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tollhouse.batches.chunks import DamagedChunk
from tollhouse.kernel.files import zstd
from tollhouse.storage.blobs import BlobExists, BlobMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.storage.blobs import Blobs

LEVEL: Final = 1
_COMPRESSED: Final = ".zst"


async def load_chunk(blobs: Blobs, key: str) -> bytes:
    """Return a chunk's lines as they stand, each with its break, in whichever form it is stored.

    Raises:
        BlobMissing: There is none.
        BlobsUnavailable: It cannot be read now.
        DamagedChunk: It is not as it was written.
    """
    if is_raw(key):
        try:
            return await blobs.get(key)
        except BlobMissing:
            key += _COMPRESSED
    return await asyncio.to_thread(_decompress, await blobs.get(key))


async def are_stored(blobs: Blobs, keys: Sequence[str]) -> bool:
    """Tell whether all chunks of some folders are there, in whichever form.

    Raises:
        BlobsUnavailable: That cannot be known now.
    """
    stored = set[str]()
    for folder in {key.rpartition("/")[0] for key in keys}:
        stored.update(await blobs.list(folder))
    return all(not stored.isdisjoint((key, key + _COMPRESSED)) for key in keys)


async def compress_chunk(blobs: Blobs, key: str) -> None:
    """Replace a raw chunk by its compressed form; nothing happens if it is not there.

    It may be killed at any point, or run twice at once.

    Raises:
        BlobsUnavailable: It cannot be read or written now.
    """
    try:
        lines = await blobs.get(key)
    except BlobMissing:
        return
    data = await asyncio.to_thread(zstd.compress, lines, LEVEL)
    with suppress(BlobExists):  # by one that was killed, or runs now
        await blobs.put(key + _COMPRESSED, data)
    await blobs.delete([key])


def is_raw(key: str) -> bool:
    """Tell whether a chunk's key is that of its raw form."""
    return not key.endswith(_COMPRESSED)


def _decompress(data: bytes) -> bytes:
    try:
        return zstd.decompress(data)
    except zstd.ZstdError as error:
        raise DamagedChunk(str(error)) from None
