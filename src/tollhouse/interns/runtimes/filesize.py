"""A program that sets how large files may become, for the processes of a sandbox.

    python -I -S filesize.py USER FIRST BYTES

It becomes the sandbox's user (or stays who it is, for -1): a process may limit those of its own
user, and root without CAP_SYS_RESOURCE, as in most containers, no others. The highest limit that
they may have stays, so that this can be taken back. It imports nothing of the gateway.

Source: prlimit(2), proc_pid_task(5).
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSES = 20


def limit_file_size(first: int, limit_bytes: int) -> None:
    """Set it for a process and for all below it."""
    done: set[int] = set()
    for _ in range(_PASSES):  # a child that is born meanwhile may have the limit of before
        found = set(descendants(first)) - done
        if not found:
            return
        for process in found:
            with suppress(OSError):
                _, highest = resource.prlimit(process, resource.RLIMIT_FSIZE)
                resource.prlimit(process, resource.RLIMIT_FSIZE, (limit_bytes, highest))
        done |= found


def descendants(process: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    waiting = [process]
    while waiting:
        each = waiting.pop()
        yield each
        with suppress(OSError):
            for thread in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    waiting += map(int, (thread / "children").read_text().split())


if __name__ == "__main__":
    user, above, size = map(int, sys.argv[1:])
    if user >= 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    limit_file_size(above, size)
