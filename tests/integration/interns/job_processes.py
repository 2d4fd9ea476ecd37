"""What tests of walks look at: the processes that this one has started for them."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import until
from tollhouse.interns.runtimes.filesize import below

_MARKER = b'"memory_bytes"'
"""In the words that a walk is started with, whatever program it is."""


def running_jobs() -> list[int]:
    """Return the walks that run, of this process alone."""
    return [each for each in below(os.getpid()) if _MARKER in command(each)]


def command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def wait_for_jobs(count: int = 1) -> list[int]:
    """Wait until so many walks run."""
    return await until(
        lambda: found if len(found := running_jobs()) >= count else None, pause=0.002
    )
