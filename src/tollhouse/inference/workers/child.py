"""A worker: the process that does one step of a large request after the other.

    python -m tollhouse.inference.workers.child

`pool` says what is on its standard streams. It needs neither settings nor a database, and ends
with the gateway: then its standard input is cut off.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.workers.pool import pack, pieces, read_frame, unpack
from tollhouse.kernel.errors import Bug, PayloadTooLarge, TollhouseError, without_frames

if TYPE_CHECKING:
    from typing import BinaryIO

    from tollhouse.inference.workers.pool import Blobs

NICENESS: Final = 5
"""A worker gives way to the event loop, which has all the others to serve."""
MOST_MEMORY: Final = 4 * 1024**3
"""Bytes of address space: a body of 32 MB can be a list of 16 million values."""
_KEPT_KB: Final = 512 * 1024
"""A worker that ever took more memory ends after its answer: little of it would be given back."""


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer one message after the other, until one of the streams ends."""
    last = False
    while not last:
        head, blobs = read_frame(source)
        succeeded, outcome = _outcome(head, blobs)
        last = _peak_kb() > _KEPT_KB
        sink.writelines(pieces(*pack((succeeded, outcome, last), blobs)))
        sink.flush()
        del head, blobs, outcome  # a worker that rests holds nothing


def _peak_kb() -> int:
    """Return the most memory that this process took; unlike `ru_maxrss`, not what its parent took.

    Source: proc_pid_status(5), `VmHWM`; what an `exec` leaves in `ru_maxrss` is in getrusage(2).
    """
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:  # no Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.partition(b"VmHWM:")[2].split(maxsplit=1)[0])


def _outcome(head: bytes, blobs: Blobs) -> tuple[bool, object]:
    try:
        function, arguments = unpack(head, blobs)
        return True, function(*arguments)
    except (TollhouseError, MalformedResponse, ErrorEvent) as error:
        return False, without_frames(error)
    except MemoryError:
        text = "The body takes too much memory to read: it has too many parts."
        return False, PayloadTooLarge(text)
    except Exception as error:  # noqa: BLE001 - the worker's edge: the gateway logs it
        return False, Bug(_place(error))


def _place(error: Exception) -> str:
    """Return what failed and where; the error's own text could hold a part of the body."""
    *_, (frame, line) = walk_tb(error.__traceback__)
    return f"a worker: {type(error).__name__} in {frame.f_globals['__name__']}, line {line}"


def main() -> None:
    """Do it, and end at once: nothing is left to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    with suppress(ValueError, OSError):  # a lower limit holds already
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with suppress(EOFError, BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
    os._exit(0)


if __name__ == "__main__":
    main()
