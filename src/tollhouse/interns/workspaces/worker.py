"""The process that does one job on a workspace's files: it reads an order and sends what it finds.

    python -P -m tollhouse.interns.workspaces.worker ORDER

The order is JSON. Standard output is a channel: `Alive` at most once a second, `ArchivePiece` for
each part of an archive, and at the end `Found` or `JobFailed`. A worker that ends without one of
these two has failed. It ends with the server at its next message, which nobody is left to read. It
imports little, since a server waits for its start at each boot.

Source: getrlimit(2), pipe(7).
"""

from __future__ import annotations

import errno
import resource
import sys
import time
from contextlib import suppress
from typing import Final

import msgspec

from tollhouse.interns.workspaces.archive_format import pack
from tollhouse.interns.workspaces.contents import DiskUsage, digest, measure
from tollhouse.interns.workspaces.messages import (
    FROM_WORKER,
    LARGEST_PIECE,
    Alive,
    ArchivePiece,
    Found,
    FromWorker,
    JobFailed,
    Order,
)
from tollhouse.interns.workspaces.tree import ANY_NUMBER

_ALIVE_SECONDS: Final = 1.0
_output: Final = open(1, "wb", buffering=0, closefd=False)  # noqa: SIM115 - until the process ends


def main(order: Order) -> None:
    """Do what was ordered, and send what it came to."""
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_bytes, order.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        end: FromWorker = Found(_work(order))
    except BrokenPipeError:
        return
    except MemoryError:
        end = JobFailed(out_of_memory=True)
    except OSError as error:
        end = JobFailed(error.errno or 0, out_of_memory=error.errno == errno.ENOMEM)
    with suppress(BrokenPipeError):
        FROM_WORKER.send_blocking(_output, end)


def _work(order: Order) -> str | DiskUsage | None:
    last = time.monotonic()

    def alive() -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _ALIVE_SECONDS:
            last = now
            FROM_WORKER.send_blocking(_output, Alive())

    if order.job == "digest":
        return digest(order.folder, alive, flush=order.flush)
    if order.job == "measure":
        return measure(order.folder, ANY_NUMBER, order.processes, alive)
    for content in pack(order.folder, alive):
        for begin in range(0, len(content), LARGEST_PIECE):
            FROM_WORKER.send_blocking(_output, ArchivePiece(content[begin : begin + LARGEST_PIECE]))
    return None


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Order))
