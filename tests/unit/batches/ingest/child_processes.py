"""Which children a process has."""

from __future__ import annotations

import os
from pathlib import Path


def children_of(process: int) -> set[int]:
    """Return the ids of a process's children; also of those that ended and nobody waited for."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return {int(each) for found in lists for each in found.read_text().split()}


def own_children() -> set[int]:
    return children_of(os.getpid())


def is_running(process: int) -> bool:
    """Tell whether a process is there and has not ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "State:\tZ" not in status
