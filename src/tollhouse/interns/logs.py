"""What became of each intern on this machine, for its owner: one line for each thing that happened.

    2026-11-22T09:11:27.512Z provisioning (1/4: Preparing the workspace)
    2026-11-22T09:11:29.638Z running
    2026-11-22T09:31:02.113Z its sandbox ended: it was killed: out of memory

A log is a file of at most `LARGEST_LOG` bytes and the one before it. It is gone with the intern.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.kernel.clock import Clock, iso_utc

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


LARGEST_LOG: Final = 256 * 1024
"""Bytes of a file, after which another one begins."""
_LONGEST_LINE: Final = 2_000


class InternLogLine(NamedTuple):
    """Something that happened."""

    at: str
    """When, in UTC."""
    text: str


@dataclass(frozen=True, slots=True)
class InternLogs:
    """The logs of the interns of this machine."""

    folder: Path
    clock: Clock

    def note(self, intern_id: str, text: str) -> None:
        """Write down that something happened; that it cannot be is no reason to stop."""
        line = "".join(each if each.isprintable() else " " for each in text[:_LONGEST_LINE])
        path = self._path(intern_id)
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size > LARGEST_LOG:
                path.replace(self._earlier(intern_id))
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{iso_utc(self.clock.now())} {line}\n")

    def tail(self, intern_id: str, most: int) -> list[InternLogLine]:
        """Return the last lines, the oldest first."""
        lines: list[str] = []
        for path in (self._earlier(intern_id), self._path(intern_id)):
            with suppress(FileNotFoundError):
                lines += path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [InternLogLine(*line.partition(" ")[::2]) for line in lines[-most:]]

    def forget(self, intern_id: str) -> None:
        """Remove the log of an intern."""
        for path in (self._earlier(intern_id), self._path(intern_id)):
            path.unlink(missing_ok=True)

    def sweep(self, known: Collection[str]) -> None:
        """Remove the logs of interns that there are no more."""
        for path in self.folder.glob("*.log*"):
            if path.name.partition(".")[0] not in known:
                path.unlink(missing_ok=True)

    def _path(self, intern_id: str) -> Path:
        return self.folder / f"{intern_id}.log"

    def _earlier(self, intern_id: str) -> Path:
        return self.folder / f"{intern_id}.log.1"
