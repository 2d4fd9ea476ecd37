"""The child processes of a process, from /proc."""

import os
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)


def children_of(process: int) -> set[int]:
    """Return the ids of a process's children, zombies included."""
    folders = Path("/proc").glob("[0-9]*")
    return {int(folder.name) for folder in folders if state_of(folder)[1:] == [str(process)]}


def own_children() -> set[int]:
    return children_of(os.getpid())


def is_running(process: int) -> bool:
    """Tell whether a process is running."""
    return state_of(Path(f"/proc/{process}"))[:1] not in ([], ["Z"])


def state_of(folder: Path) -> list[str]:
    """Return a process's state and its parent's id; empty without a process."""
    try:
        text = (folder / "stat").read_text()
    except GONE:
        return []
    return text.rpartition(")")[2].split()[:2]
