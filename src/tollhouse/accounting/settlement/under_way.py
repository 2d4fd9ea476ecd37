"""The requests that are at a provider now, on disk: a kill that cuts one off leaves a trace of it.

A provider bills a reply that nobody received any more. So each request leaves a record of its
beginning in a file that is mapped into memory, before a provider is asked; its place is free again
once its charge is in the journal, or once it is known that there is none. What is found there when
its process is gone was under way when that was killed.

    <journal>/under_way.log     slots of `SLOT_BYTES`; a beginning is a line as in the journal, in
                                as many adjacent slots as it needs, then zeros
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.mapped_file import MappedFile
from tollhouse.accounting.settlement.payloads import (
    line_of,
    payload_in,
    payload_of,
    without_foreign_texts,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tollhouse.accounting.types import GenerationRecord

SLOT_BYTES: Final = 2048
"""A beginning takes some 600 bytes. What programs say of themselves is left out of a longer one."""
FEWEST_SLOTS: Final = 128
_FREE: Final = b"\0"


class RequestsUnderWay:
    """A file with a place for each request; `OSError` says that the disk is full, say."""

    name: Final = "under_way.log"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name
        self._file: MappedFile | None = None
        self._free: list[int] = []
        """Where free slots begin."""
        self._slots: dict[str, Sequence[int]] = {}
        """Where those of a generation begin."""

    def __len__(self) -> int:
        """Return how many are there."""
        return len(self._slots)

    def read(self) -> Sequence[bytes]:
        """Return the beginnings that are there: those that a killed process left."""
        data = self._path.read_bytes() if self._path.exists() else b""
        starts = (at for at in range(0, len(data), SLOT_BYTES) if data[at : at + 1] != _FREE)
        # A slot may also hold what comes later in a longer beginning, and one that is not whole
        # was cut off while it was written: nobody was asked yet.
        found = (payload_in(data[at : data.find(b"\n", at) + 1]) for at in starts)
        return [payload for payload in found if payload is not None]

    def reserve(self, requests: int) -> None:
        """Have slots for so many requests together."""
        missing = requests - len(self._slots) - len(self._free)
        if missing > 0:
            self._grow(max(FEWEST_SLOTS, missing + requests // 4))

    def begin(self, record: GenerationRecord) -> None:
        """Keep that a request goes to a provider; a second one takes the place of the first."""
        line = line_of(payload_of(record))
        if len(line) > SLOT_BYTES:
            line = line_of(payload_of(without_foreign_texts(record)))
        slots = self._take(-(-len(line) // SLOT_BYTES))
        self._write(slots[0], line.ljust(len(slots) * SLOT_BYTES, _FREE))
        self.end(record.id)
        self._slots[record.id] = slots

    def end(self, generation_id: str) -> None:
        """Free the place of a request; does nothing where it has none."""
        for at in self._slots.pop(generation_id, ()):
            self._write(at, _FREE)
            self._free.append(at)

    def close(self) -> None:
        """Give up the file; what is in it stays there."""
        if self._file is not None:
            self._file.close()
        self._file, self._free, self._slots = None, [], {}

    def _take(self, count: int) -> Sequence[int]:
        """Take so many free slots that lie side by side: hardly ever more than one."""
        self.reserve(len(self._slots) + 1)
        if count == 1:
            return (self._free.pop(),)
        free = set(self._free)
        size = count * SLOT_BYTES
        runs = (range(at, at + size, SLOT_BYTES) for at in sorted(free))
        run = next((each for each in runs if free.issuperset(each)), None)
        if run is None:
            run = self._grow(count)
        self._free = [at for at in self._free if at not in run]
        return run

    def _write(self, at: int, data: bytes) -> None:
        if self._file is not None:
            self._file.bytes[at : at + len(data)] = data

    def _grow(self, slots: int) -> Sequence[int]:
        had = 0 if self._file is None else len(self._file.bytes)
        size = had + slots * SLOT_BYTES
        if self._file is None:
            self._file = MappedFile(self._path, size)
        else:
            self._file.grow(size)
        new = range(had, size, SLOT_BYTES)
        self._free.extend(new)
        return new
