"""The processes of workspace jobs that this process has started."""

import os
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import until
from tollhouse.interns.runtimes.filesize import descendants

_MARKER = b'"memory_bytes"'
"""Part of every job's command line."""


def running_jobs() -> list[int]:
    """Return the ids of this process's running jobs."""
    return [each for each in descendants(os.getpid()) if _MARKER in command(each)]


def command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def wait_for_jobs(count: int = 1) -> list[int]:
    """Wait until so many jobs run."""
    return await until(
        lambda: found if len(found := running_jobs()) >= count else None, pause=0.002
    )
