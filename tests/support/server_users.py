"""The users as whom a server runs: the tests' own and, where that is root, an ordinary one."""

import os
import sys
from collections.abc import Collection
from pathlib import Path

import tollhouse

USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
NUMBER = 900_000_000 + os.getpid() if os.geteuid() == 0 else os.geteuid()
"""The number of the ordinary user, which nobody else has."""


def owner(user: str, folder: Path, shown: Collection[Path] = ()) -> tuple[int, list[str]] | None:
    """Return what `start_server` needs to start a server as one of `USERS`.

    Args:
        user: As whom.
        folder: With all that it reads and writes; made the user's own.
        shown: More folders that it has to reach.
    """
    if user == "root" or os.geteuid() != 0:
        return None
    python = (Path(sys.prefix), Path(sys.base_prefix))
    source = Path(tollhouse.__file__).resolve().parents[1]
    folders = (folder, *shown, *python, source)
    return NUMBER, [*map(str, dict.fromkeys(each.resolve() for each in folders))]


def rights_of(process: int) -> tuple[int, int]:
    """Return which user a process is, and its capabilities."""
    status = Path(f"/proc/{process}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in status.splitlines())
    return int(facts["Uid"].split()[0]), int(facts["CapPrm"], 16)
