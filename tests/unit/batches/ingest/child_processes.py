"""Which children a process has."""

from __future__ import annotations

import os
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)


def children_of(process: int) -> set[int]:
    """Return the ids of a process's children; also of those that ended and nobody waited for."""
    folders = Path("/proc").glob("[0-9]*")
    return {int(folder.name) for folder in folders if state_of(folder)[1:] == [str(process)]}


def own_children() -> set[int]:
    return children_of(os.getpid())


def is_running(process: int) -> bool:
    """Tell whether a process is there and has not ended."""
    return state_of(Path(f"/proc/{process}"))[:1] not in ([], ["Z"])


def state_of(folder: Path) -> list[str]:
    """Return the state of a process and the id of its parent; nothing where there is none."""
    try:
        text = (folder / "stat").read_text()
    except GONE:
        return []
    return text.rpartition(")")[2].split()[:2]
