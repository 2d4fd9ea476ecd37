"""The ingest child: the process that reads a long body, so that the gateway's never does.

    python -m tollhouse.batches.ingest.child <body bytes> <items> <item bytes>

`frames` says what is on its standard streams. It needs neither settings nor a database, and ends
with the gateway: then its standard input is cut off, or nobody takes what it says.
"""

from __future__ import annotations

import os
import signal
import sys
from traceback import walk_tb
from typing import TYPE_CHECKING

from tollhouse.batches.ingest.frames import Cut, Done, Failed, frame_of, read_body, refused
from tollhouse.batches.ingest.intake import IntakeLimits
from tollhouse.batches.ingest.reader import Reader
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from tollhouse.batches.chunks import Chunk
    from tollhouse.batches.ingest.frames import Refused


def run(source: BinaryIO, sink: BinaryIO, limits: IntakeLimits) -> None:
    """Read a body from one stream and say on the other what it is.

    Raises:
        Cut: The other side of `source` is gone.
        BrokenPipeError: The other side of `sink` is.
    """
    for message in _messages(source, limits):
        sink.writelines(frame_of(message))
        sink.flush()


def _messages(source: BinaryIO, limits: IntakeLimits) -> Iterator[Chunk | Done | Refused | Failed]:
    try:
        yield from _read(source, limits)
    except Cut:
        raise
    except Invalid as error:
        yield refused(error)
    except Exception as error:  # noqa: BLE001 - the child's edge: the gateway logs it
        yield Failed(_place(error))


def _read(source: BinaryIO, limits: IntakeLimits) -> Iterator[Chunk | Done]:
    reader = Reader(limits)
    for piece in read_body(source):
        yield from reader.feed(piece)
    chunks, summary = reader.end()
    yield from chunks
    yield Done(summary)


def _place(error: Exception) -> str:
    """Return what failed and where; the error's own text could hold a part of the body."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"{type(error).__name__} in {frame.f_globals['__name__']}, line {line}"


def main() -> None:
    """Do it, and end at once: nothing is left to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    limits = IntakeLimits(*map(int, sys.argv[1:]))
    try:
        run(sys.stdin.buffer, sys.stdout.buffer, limits)
    except (Cut, BrokenPipeError):
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main()
