"""What the gateway and its workers say to each other, over a worker's standard streams.

    to the worker     (function, arguments)
    from the worker   (True, result, last) or (False, error, last); last: the worker ends now

    <number of blobs> <size of head> <size of each blob> <head> <blob> ...

The head is a pickle, in which long bytes are numbers of blobs: they are written as they are, and
what came with the question does not go back with its answer. Numbers are 8 bytes, big-endian.
Both sides are this program, and only they have the pipe: a pickle is no more than a call.
"""

from __future__ import annotations

import pickle
import struct
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

PIECE: Final = 256 * 1024
"""Most bytes that are written or read in one step."""
_LONG: Final = 32 * 1024
_NUMBER: Final = struct.Struct(">Q")
_START: Final = struct.Struct(">QQ")

Blobs = tuple[bytes, ...]


class WorkerStreamEnded(Exception):
    """A stream ended: the other process is gone."""


class _Pickler(pickle.Pickler):
    def __init__(self, file: BytesIO, known: Blobs) -> None:
        super().__init__(file, protocol=5)
        self._numbers = {id(blob): number for number, blob in enumerate(known)}
        self._known = len(known)
        self.blobs: list[bytes] = []

    def persistent_id(self, obj: object) -> int | None:
        if type(obj) is not bytes or len(obj) < _LONG:
            return None
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = self._known + len(self.blobs)
            self.blobs.append(obj)  # kept, so that its id stays its own
        return number


class _Unpickler(pickle.Unpickler):
    def __init__(self, head: bytes, blobs: Blobs) -> None:
        super().__init__(BytesIO(head))
        self._blobs = blobs

    def persistent_load(self, pid: int) -> bytes:
        return self._blobs[pid]


def pack(message: object, known: Blobs = ()) -> tuple[bytes, Blobs]:
    """Return the head and the blobs of a message.

    Args:
        message: What is said.
        known: The blobs of the message that it answers.
    """
    file = BytesIO()
    pickler = _Pickler(file, known)
    pickler.dump(message)
    return file.getvalue(), tuple(pickler.blobs)


def unpack(head: bytes, blobs: Blobs, known: Blobs = ()) -> Any:  # noqa: ANN401 - any message
    """Return a message."""
    return _Unpickler(head, known + blobs).load()


def pieces(head: bytes, blobs: Sequence[bytes]) -> Iterator[bytes | memoryview]:
    """Yield what is written of a message, at most `PIECE` bytes at a time."""
    sizes = b"".join(_NUMBER.pack(len(blob)) for blob in blobs)
    yield _START.pack(len(blobs), len(head)) + sizes
    for part in (head, *blobs):
        view = memoryview(part)
        for at in range(0, len(view), PIECE):
            yield view[at : at + PIECE]


def read_frame(stream: BinaryIO) -> tuple[bytes, Blobs]:
    """Return the head and the blobs of the next message.

    Raises:
        Cut: The other side is gone.
    """
    count, size = _START.unpack(_exactly(stream, _START.size))
    sizes = [_NUMBER.unpack(_exactly(stream, _NUMBER.size))[0] for _ in range(count)]
    return _exactly(stream, size), tuple(_exactly(stream, each) for each in sizes)


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise WorkerStreamEnded
    return data


async def receive_frame(stream: asyncio.StreamReader) -> tuple[bytes, Blobs]:
    """Return the same of a stream of the event loop, piece by piece.

    Raises:
        EOFError: The other side is gone.
    """
    count, size = _START.unpack(await stream.readexactly(_START.size))
    sizes = [_NUMBER.unpack(await stream.readexactly(_NUMBER.size))[0] for _ in range(count)]
    head = await _received(stream, size)
    return head, tuple([await _received(stream, each) for each in sizes])


async def _received(stream: asyncio.StreamReader, size: int) -> bytes:
    gathered: list[bytes] = []
    while size:
        piece = await stream.readexactly(min(size, PIECE))
        gathered.append(piece)
        size -= len(piece)
    return gathered[0] if len(gathered) == 1 else b"".join(gathered)
