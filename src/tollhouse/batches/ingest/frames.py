"""What the gateway and its ingest child say to each other, over the child's standard streams.

    to the child      <size> <piece of the body> ... <size 0>
    from the child    <size of head> <size of data> <head> <data> ...

    {"type": "full", "number": 0, "first": 0, "lines": 500}    a chunk; its content is the data
    {"type": "done", "summary": {...}}                         the last one, without data
    {"type": "refused", "error": "Invalid", "message": "..."}  the last one, without data
    {"type": "failed", "reason": "ValueError in ..."}          the last one, without data

Sizes are 4 bytes, big-endian. A stream that ends anywhere else says that the other one is gone: the
end of a body is said in so many words, so that a gateway that was killed is none.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.batches.chunks import Chunk
from tollhouse.batches.ingest.reader import Summary
from tollhouse.kernel.errors import Invalid, PayloadTooLarge, Unprocessable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from typing import BinaryIO

PIECE: Final = 256 * 1024
"""Most bytes of a body in one frame."""
_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")
END: Final = _SIZE.pack(0)
"""Says to the child that the body has ended."""
_REFUSALS: Final = {each.__name__: each for each in (Invalid, PayloadTooLarge, Unprocessable)}


class Cut(Exception):
    """A stream ended where more was due: the other process is gone."""


class _Full(msgspec.Struct, tag="full"):
    number: int
    first: int
    lines: int


class Done(msgspec.Struct, tag="done"):
    """The body was read to its end."""

    summary: Summary


class Refused(msgspec.Struct, tag="refused"):
    """The body is not taken."""

    error: str
    message: str


class Failed(msgspec.Struct, tag="failed"):
    """The child has a fault."""

    reason: str


_read_head = msgspec.json.Decoder(_Full | Done | Refused | Failed).decode
_encode = msgspec.json.Encoder().encode


def frame_of(message: Chunk | Done | Refused | Failed) -> tuple[bytes, ...]:
    """Return what the child says, in pieces that follow each other."""
    head, data = message, b""
    if isinstance(message, Chunk):
        head, data = _Full(message.number, message.first, message.lines), message.data
    encoded = _encode(head)
    return _SIZES.pack(len(encoded), len(data)), encoded, data


async def read_frame(stream: asyncio.StreamReader) -> Chunk | Done | Refused | Failed:
    """Return what the child says next.

    Raises:
        EOFError: It is gone.
    """
    sizes = await stream.readexactly(_SIZES.size)
    size_of_head, size_of_data = _SIZES.unpack(sizes)
    head = _read_head(await stream.readexactly(size_of_head))
    data = await stream.readexactly(size_of_data)
    return Chunk(head.number, head.first, head.lines, data) if isinstance(head, _Full) else head


def refused(error: Invalid) -> Refused:
    """Return what the child says of a refusal."""
    return Refused(type(error).__name__, error.message)


def refusal(message: Refused) -> Invalid:
    """Return the refusal that the child said, of the same kind and with the same words."""
    return _REFUSALS[message.error](message.message)


def body_frames(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yield what is said to the child of a part of the body: sizes and pieces."""
    view = memoryview(data)
    for at in range(0, len(view), PIECE):
        piece = view[at : at + PIECE]
        yield _SIZE.pack(len(piece)), piece


def read_body(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the pieces of a body up to its end.

    Raises:
        Cut: The gateway is gone.
    """
    while size := _SIZE.unpack(_exactly(stream, _SIZE.size))[0]:
        yield _exactly(stream, size)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise Cut
    return data
