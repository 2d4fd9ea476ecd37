"""The holes of a sparse file: what holds data is read, what holds none is skipped.

All is in blocks of `BLOCK`: a file of small pieces between small holes costs at most 16 times its
data, and its list of pieces stays short.

Source: lseek(2), SEEK_DATA and SEEK_HOLE.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 64 * 1024
_ZEROS: Final = bytes(BLOCK)


class FileChanged(OSError):
    """Somebody made a file shorter while it was read."""


def extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a file holds data: begin and end, in their order, with a hole between two.

    Begins are multiples of `BLOCK`, and so are ends but for the last one. A file system that knows
    nothing of holes has one piece of data.

    Args:
        file: A descriptor that reads it.
        size: Up to where.

    Raises:
        OSError: The file system fails.
    """
    begin = end = 0
    for data, hole in _found(file, size):
        from_block, to_block = data - data % BLOCK, min(size, -(-hole // BLOCK) * BLOCK)
        if from_block > end:
            if end > begin:
                yield begin, end
            begin = from_block
        end = max(end, to_block)
    if end > begin:
        yield begin, end


def blocks(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file that hold anything but zeros, each with its place.

    Equal content yields the same, with holes or without.

    Raises:
        FileChanged: It is shorter by now.
        OSError: It cannot be read.
    """
    for begin, end in extents(file, size):
        for at in range(begin, end, BLOCK):
            block = read_at(file, at, min(BLOCK, end - at))
            if block != _ZEROS[: len(block)]:
                yield at, block


def read_at(file: int, at: int, size: int) -> bytes:
    """Return so many bytes of a file.

    Raises:
        FileChanged: It is shorter by now.
    """
    found = os.pread(file, size, at)
    while len(found) < size:
        more = os.pread(file, size - len(found), at + len(found))
        if not more:
            raise FileChanged
        found += more
    return found


def _found(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the file system says that data begins and ends."""
    at = 0
    while at < size:
        try:
            data = os.lseek(file, at, os.SEEK_DATA)
            hole = os.lseek(file, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # a hole up to the end
            if error.errno != errno.EINVAL:
                raise
            data, hole = at, size
        if data >= size:
            return
        yield data, hole
        at = hole
