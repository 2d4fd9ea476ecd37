"""Places at which a test has the program stop, so that it can be killed or looked at just there.

    await failpoint("batch.commit.after")             this caller stops; others go on
    blocking_failpoint("journal.append.before")       the whole thread stops

They do nothing unless the environment variable TOLLHOUSE_TEST_FAILPOINTS names a folder:

    FOLDER/NAME       from the test: at which pass from now on one stops, "1" for the next
    FOLDER/reached    what the one that stops renames that file to; it goes on once this is gone

Each process counts its own passes, and whoever renames the file first is the only one that stops.
A process that a test has left behind ends after three minutes.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

VARIABLE: Final = "TOLLHOUSE_TEST_FAILPOINTS"
REACHED: Final = "reached"
_LOOK_SECONDS: Final = 0.002
_MOST_LOOKS: Final = 90_000
_passes: dict[str, int] = {}


async def failpoint(name: str) -> None:
    """Stop here for as long as a test wants it; everything else of the process goes on."""
    if (folder := _folder()) is not None:
        import asyncio  # noqa: PLC0415 - a books process does without it

        for _ in _pauses(folder, name):
            await asyncio.sleep(_LOOK_SECONDS)


def blocking_failpoint(name: str) -> None:
    """Stop this thread for as long as a test wants it."""
    if (folder := _folder()) is not None:
        for _ in _pauses(folder, name):
            time.sleep(_LOOK_SECONDS)


@cache
def _folder() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def _pauses(folder: Path, name: str) -> Generator[None]:
    """Count a pass; return a pause after the other for as long as this caller has to stop."""
    reached = folder / REACHED
    try:
        wanted = int((folder / name).read_text())
        _passes[name] = _passes.get(name, 0) + 1
        if _passes[name] < wanted:
            return
        (folder / name).rename(reached)
    except FileNotFoundError:  # nobody is to stop, or somebody else does
        return
    del _passes[name]
    for _ in range(_MOST_LOOKS):
        if not reached.exists():
            return
        yield
    os._exit(1)
