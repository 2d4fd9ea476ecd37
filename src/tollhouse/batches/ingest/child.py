"""The ingest child: the process that reads a long body, so that the gateway's never does.

    python -m tollhouse.batches.ingest.child <staging> <body bytes> <items> <item bytes>

    standard input     the body, up to its end
    standard output    ChunkFile, ChunkFile, ... Done     its chunks, and what it is as a whole
                       ... or Refused, StoreFailed        why the batch is not accepted
                       or Failed
    files              <staging>00000 ...                 each there before its message leaves

The messages are a channel. A gateway that was killed ends the body, too, but then nobody reads what
is said of it. The child needs neither settings nor a database, and ends with the gateway: then
nobody reads what it writes.
"""

from __future__ import annotations

import os
import signal
import sys
from io import FileIO
from traceback import walk_tb
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from tollhouse.batches.ingest.reader import BatchLimits, BatchReader, BatchSummary
from tollhouse.kernel.channel import Channel
from tollhouse.kernel.errors import Invalid, PayloadTooLarge, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tollhouse.batches.chunks import Chunk

PIECE_BYTES: Final = 256 * 1024
"""Most bytes that are read at once."""
_LARGEST_MESSAGE: Final = 2 * 1024 * 1024
"""More than a summary has, of which the envelope is the most."""
_REFUSALS: Final = {each.__name__: each for each in (Invalid, PayloadTooLarge, Unprocessable)}


class ChunkFile(msgspec.Struct, tag="chunk", frozen=True):
    """A chunk is in its file, which is not flushed."""

    number: int
    first: int
    """The number of the first line among all chunks."""
    lines: int


class Done(msgspec.Struct, tag="done", frozen=True):
    """The body was read to its end."""

    summary_json: bytes
    """As JSON, which has integers of any size, as the batch's preferences may."""

    def summary(self) -> BatchSummary:
        """Return what the child found."""
        return msgspec.json.decode(self.summary_json, type=BatchSummary)


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """The batch is not accepted."""

    kind: str
    message: str

    def error(self) -> Invalid:
        """Return the error that the child met."""
        return _REFUSALS[self.kind](self.message)


class StoreFailed(msgspec.Struct, tag="store_failed", frozen=True):
    """A chunk's file cannot be written."""

    errno: int

    def error(self) -> OSError:
        """Return the error that the child met."""
        return OSError(self.errno, os.strerror(self.errno))


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The child has a fault."""

    reason: str


FromChild = ChunkFile | Done | Refused | StoreFailed | Failed
FROM_CHILD: Final[Channel[FromChild]] = Channel(FromChild, largest=_LARGEST_MESSAGE)


def chunk_path(staging: str, number: int) -> str:
    """Return the file of a chunk; `staging` is what the names of all begin with."""
    return f"{staging}{number:05}"


def run(source: FileIO, sink: BinaryIO, staging: str, limits: BatchLimits) -> None:
    """Read a body from one file, and write to the other what it is, until the gateway is gone."""
    for message in _messages(source, staging, limits):
        FROM_CHILD.send_blocking(sink, message)


def _messages(source: FileIO, staging: str, limits: BatchLimits) -> Iterator[FromChild]:
    try:
        reader = BatchReader(limits)
        while piece := source.read(PIECE_BYTES):
            for chunk in reader.feed(piece):
                yield _stored(chunk, staging)
        chunks, summary = reader.end()
        for chunk in chunks:
            yield _stored(chunk, staging)
        yield Done(msgspec.json.encode(summary))
    except Invalid as error:
        yield Refused(type(error).__name__, error.message)
    except _StoreError as error:
        yield StoreFailed(error.errno)
    except Exception as error:  # noqa: BLE001 - the child's edge: the gateway logs it
        yield Failed(_place(error))


class _StoreError(Exception):
    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno


def _stored(chunk: Chunk, staging: str) -> ChunkFile:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        file = os.open(chunk_path(staging, chunk.number), flags, 0o600)
        try:
            rest = memoryview(chunk.data)
            while rest:  # a disk that is nearly full takes a part, and refuses the next one
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
    except OSError as error:
        raise _StoreError(error.errno or 0) from error
    return ChunkFile(chunk.number, chunk.first, chunk.lines)


def _place(error: Exception) -> str:
    """Return what failed and where; the error's own text could hold a part of the body."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {frame.f_globals['__name__']}, line {line}"


def main() -> None:
    """Do it, and end at once: nothing is left to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    staging, *numbers = sys.argv[1:]
    try:
        run(FileIO(0), sys.stdout.buffer, staging, BatchLimits(*map(int, numbers)))
    except BrokenPipeError:
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
