"""What several processes count of each client address, in memory that they share.

Each process has a row: how many connections it holds of each address. One more array has, for each
address, when its next request is due (`AddressRate`). An address has the place that a keyed hash
gives it. Two addresses may have the same one; nobody can choose which.
"""

from __future__ import annotations

import mmap
import os
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLACES: Final = 65_536
_DUE_BYTES: Final = 8 * _PLACES
_ROW_BYTES: Final = 4 * _PLACES
_REMEMBERED: Final = 10_000


def make_table(rows: int) -> int:
    """Return the descriptor of a table for so many processes at once."""
    descriptor = os.memfd_create("addresses", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, _DUE_BYTES + rows * _ROW_BYTES)  # takes memory once it is written
    return descriptor


def clear_row(descriptor: int, row: int) -> None:
    """Forget the connections of a process that is gone."""
    os.pwrite(descriptor, bytes(_ROW_BYTES), _DUE_BYTES + row * _ROW_BYTES)


class AddressTable:
    """The table, from one process's side.

    A request of two processes at the same moment may count once.
    """

    def __init__(self, descriptor: int, rows: int, own: int, key: bytes) -> None:
        memory = memoryview(mmap.mmap(descriptor, _DUE_BYTES + rows * _ROW_BYTES))
        self._due = memory[:_DUE_BYTES].cast("d")
        held = [
            memory[_DUE_BYTES + row * _ROW_BYTES :][:_ROW_BYTES].cast("i") for row in range(rows)
        ]
        self._own = held.pop(own)
        self._others: Sequence[memoryview[int]] = held
        self._key = key
        self._place = lru_cache(_REMEMBERED)(self._hash)

    def hold(self, address: str, change: int) -> None:
        """Count a connection of this process that begins, 1, or ends, -1."""
        self._own[self._place(address)] += change

    def elsewhere(self, address: str) -> int:
        """Return how many connections of an address the other processes hold."""
        place = self._place(address)
        return sum(row[place] for row in self._others)

    def get(self, address: str, default: float) -> float:
        """Return when the next request of an address is due."""
        return self._due[self._place(address)] or default

    def __setitem__(self, address: str, due: float) -> None:
        """Say when it is."""
        self._due[self._place(address)] = due

    def _hash(self, address: str) -> int:
        digest = blake2b(address.encode(), key=self._key, digest_size=4).digest()
        return int.from_bytes(digest, "little") % _PLACES
