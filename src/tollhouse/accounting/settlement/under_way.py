"""The requests that are at a provider now, on disk: a kill that cuts one off leaves a trace of it.

A provider bills a reply that nobody received any more. So each request leaves a record of its
beginning in a slot of a file that is mapped into memory, before a provider is asked; the slot is
free again once its charge is in the journal, or once it is known that there is none. What a start
finds in the slots was under way when the process before was killed.

    <journal>/under_way.log     slots of `SLOT_BYTES`, each a line as in the journal, then zeros
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Final

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
_NAME: Final = "under_way.log"
_FREE: Final = b"\0"


class RequestsUnderWay:
    """Slots of a file, one for each request; `OSError` says that the disk is full, say."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._descriptor: int | None = None
        self._map: mmap.mmap | None = None
        self._free: list[int] = []
        """Where free slots begin."""
        self._slots: dict[str, int] = {}
        """Where that of a generation begins."""

    def read(self) -> Sequence[bytes]:
        """Return the beginnings that are there: at a start, those that a killed process left."""
        data = self._path.read_bytes() if self._path.exists() else b""
        slots = (data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES))
        found = (payload_in(slot.rstrip(_FREE)) for slot in slots if slot[:1] != _FREE)
        # One that is not whole was cut off while it was written: nobody was asked yet.
        return [payload for payload in found if payload is not None]

    def clear(self) -> None:
        """Free every slot: what was in them is booked."""
        self.close()
        self._path.unlink(missing_ok=True)

    def reserve(self, requests: int) -> None:
        """Have slots for so many requests together."""
        if len(self._slots) + len(self._free) < requests:
            self._grow(max(FEWEST_SLOTS, requests * 5 // 4))

    def begin(self, record: GenerationRecord) -> None:
        """Keep that a request goes to a provider; a second one takes the place of the first."""
        line = line_of(payload_of(record))
        if len(line) > SLOT_BYTES:
            line = line_of(payload_of(without_foreign_texts(record)))
        at = self._slots.pop(record.id, None)
        if at is None:
            self.reserve(len(self._slots) + 1)
            at = self._free.pop()
        self._write(at, line[:SLOT_BYTES].ljust(SLOT_BYTES, _FREE))
        self._slots[record.id] = at

    def end(self, generation_id: str) -> None:
        """Free the slot of a request; does nothing where it has none."""
        at = self._slots.pop(generation_id, None)
        if at is not None:
            self._write(at, _FREE)
            self._free.append(at)

    def close(self) -> None:
        """Give up the file; what is in it stays there."""
        if self._map is not None:
            self._map.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._map = self._descriptor = None
        self._free, self._slots = [], {}

    def _write(self, at: int, data: bytes) -> None:
        if self._map is not None:
            self._map[at : at + len(data)] = data

    def _grow(self, slots: int) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        had, size = len(self._slots) + len(self._free), slots * SLOT_BYTES
        # Written, since room that is only promised could be missing when it is used.
        missing = bytes(size - had * SLOT_BYTES)
        if os.pwrite(self._descriptor, missing, had * SLOT_BYTES) != len(missing):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        old, self._map = self._map, mmap.mmap(self._descriptor, size)
        if old is not None:
            old.close()
        self._free.extend(range(had * SLOT_BYTES, size, SLOT_BYTES))
