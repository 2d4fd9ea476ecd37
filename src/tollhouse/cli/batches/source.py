"""A file of requests that can be read twice: it is checked first, and sent then.

What can be read only once, standard input or a pipe, is kept in a temporary file meanwhile.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import BinaryIO

STANDARD_INPUT: Final = "-"
PIECE: Final = 256 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@contextmanager
def opened(name: str) -> Generator[BinaryIO]:
    """Open a file that can be sought.

    Args:
        name: Its path; `-` for standard input.

    Raises:
        StartError: It cannot be read.
    """
    try:
        with _stream(name) as stream:
            if name != STANDARD_INPUT and stream.seekable():
                yield stream
                return
            with tempfile.TemporaryFile() as kept:
                shutil.copyfileobj(stream, kept, PIECE)
                yield kept
    except OSError as error:
        message = f"{shown(name)} cannot be read ({error.strerror})"
        raise StartError(message) from None


def shown(name: str) -> str:
    """Return what a file is called in messages."""
    return "standard input" if name == STANDARD_INPUT else name


def lines_of(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers counted from 1."""
    file.seek(_start(file))
    for number, line in enumerate(file, 1):
        if text := line.strip():
            yield number, text


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield all of it, piece by piece."""
    file.seek(_start(file))
    while piece := file.read(PIECE):
        yield piece


def size_of(file: BinaryIO) -> int:
    """Return the bytes that `pieces_of` yields."""
    return file.seek(0, io.SEEK_END) - _start(file)


def beginning_of(file: BinaryIO) -> bytes:
    """Return the first bytes of it."""
    file.seek(_start(file))
    return file.read(PIECE)


def _start(file: BinaryIO) -> int:
    """Return where the text begins: behind the mark that some editors put there."""
    file.seek(0)
    mark = file.read(len(_BYTE_ORDER_MARK))
    return len(mark) if mark == _BYTE_ORDER_MARK else 0


@contextmanager
def _stream(name: str) -> Generator[BinaryIO]:
    if name != STANDARD_INPUT:
        with Path(name).open("rb") as file:
            yield file
        return
    yield cast("Any", sys.stdin).buffer
