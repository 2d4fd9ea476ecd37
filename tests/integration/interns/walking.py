"""What tests of walks look at: the processes that this one has started for them."""

import os
from contextlib import suppress
from pathlib import Path

from tests.waiting import until


def walks() -> list[int]:
    """Return the walks that run, of this process alone."""
    found: list[int] = []
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        with suppress(OSError):
            found += map(int, (thread / "children").read_text().split())
    return [each for each in found if b"tollhouse.interns.walks" in command(each)]


def command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def until_walking(count: int = 1) -> list[int]:
    """Wait until so many walks run."""
    return await until(lambda: found if len(found := walks()) >= count else None, pause=0.002)
