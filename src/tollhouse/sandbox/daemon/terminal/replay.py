"""What a program printed last, and where in all that it printed that stands. Pure."""

from __future__ import annotations

LIMIT = 256 * 1024
"""Bytes that are kept."""
_CONTINUES = 0b1000_0000
_CONTINUES_MASK = 0b1100_0000
_LONGEST_CHARACTER = 4


class Replay:
    """The end of a stream of bytes. A position is the number of bytes before it."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Take how many bytes are kept."""
        self._limit = limit
        self._kept = bytearray()
        self._start = 0

    @property
    def end(self) -> int:
        """The position behind all that was printed."""
        return self._start + len(self._kept)

    def append(self, data: bytes) -> None:
        """Take what was printed; forget the oldest."""
        self._kept += data
        excess = len(self._kept) - self._limit
        if excess > 0:
            del self._kept[:excess]
            self._start += excess

    def first(self, wanted: int) -> int:
        """Return the position to go on from for somebody who wants everything from a position on.

        It is the wanted one where that is kept, and the end where there is nothing so far. Else it
        is the oldest that is kept and no rest of a character.
        """
        if wanted >= self._start:
            return min(wanted, self.end)
        skipped = 0
        while (
            skipped < min(_LONGEST_CHARACTER - 1, len(self._kept))
            and self._kept[skipped] & _CONTINUES_MASK == _CONTINUES
        ):
            skipped += 1
        return self._start + skipped

    def read(self, position: int, limit: int) -> bytes:
        """Return what stands at a position that is kept; nothing at the end."""
        at = position - self._start
        return bytes(self._kept[at : at + limit])
