"""Sandboxes of a server that was killed while it made them.

A sandbox ends with the server. But for some milliseconds, between the first process of a sandbox
and that process's wish to end with its parent, it does not: killed just then, the server leaves a
process that waits for ever, and has run nothing of the sandbox.

Source: bwrap(1), --die-with-parent; proc_pid_cmdline(5).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tollhouse.interns.runtimes.command import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator


def end_marked(mark: str, running: frozenset[str]) -> None:
    """Kill bubblewraps whose sandboxes bear our mark, but for those that run.

    Args:
        mark: What all our marks begin with.
        running: Marks whole.
    """
    for process, found in _marked():
        if found.startswith(mark) and found not in running:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _marked() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name == "bwrap" and MARK in words:
                yield int(folder.name), words[words.index(MARK) + 1]
