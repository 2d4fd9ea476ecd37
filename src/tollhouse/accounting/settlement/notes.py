"""What a person is to look at: files beside the journals, the same for all of them.

    <root>/unbookable.log   charges that no database would take
    <root>/damaged.log      what was found in a journal and is no record, as it was
    <root>/missing.log      that charges were gone from a journal: a file was emptied, or replaced

They are appended to, and taken away by that person.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.payloads import line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_UNBOOKABLE: Final = "unbookable.log"
_DAMAGED: Final = "damaged.log"
_MISSING: Final = "missing.log"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """Bytes of a journal that are no record."""

    file: str
    """Its path from the journals' root."""
    offset: int
    data: bytes = field(repr=False)
    is_tail: bool
    """Whether they are the file's last: a record that a kill cut off, of a reply that never left
    whole."""


@dataclass(frozen=True, slots=True)
class MissingCharges:
    """Charges that a file of a journal had, and has no more."""

    file: str
    """Its path from the journals' root."""
    expected: int
    """Bytes that were written into it."""
    found: int


class JournalNotes:
    """Appends to the files; several processes may at once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def quarantine(self, payload: bytes) -> None:
        """Keep a record that cannot be booked, so that its file may be emptied."""
        self._keep(_UNBOOKABLE, line_of(payload))

    def keep_damaged(self, damaged: Iterable[DamagedRecord]) -> None:
        """Keep what is no record."""
        self._keep(_DAMAGED, b"".join(each.data + b"\n" for each in damaged))

    def keep_missing(self, missing: Iterable[MissingCharges]) -> None:
        """Note that charges are gone, until a person takes the note away."""
        lines = (f"{each.file} {each.expected} {each.found}\n" for each in missing)
        self._keep(_MISSING, "".join(lines).encode())

    def missing(self) -> Sequence[MissingCharges]:
        """Return what `keep_missing` noted."""
        path = self._root / _MISSING
        lines = path.read_text().splitlines() if path.exists() else []
        each = map(str.split, lines)
        return [MissingCharges(file, int(expected), int(found)) for file, expected, found in each]

    def _keep(self, name: str, data: bytes) -> None:
        if not data:
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._root / name, flags, 0o600), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
