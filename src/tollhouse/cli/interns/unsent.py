"""Input on its way to a terminal: what may not have come has to be sent once more. Pure."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 192 * 1024
"""Bytes that may be under way; a daemon holds 256 KiB."""


class Unsent:
    """Input, by its position in all that a terminal was ever sent."""

    def __init__(self) -> None:
        """Begin with nothing, at no position."""
        self._kept = bytearray()
        self._start = 0
        self._begun = False
        self._sent = 0

    @property
    def room(self) -> int:
        """How many bytes more may be taken."""
        return WINDOW - len(self._kept)

    def add(self, data: bytes) -> None:
        """Take input."""
        self._kept += data

    def next(self, most: int) -> bytes:
        """Return what is to be sent next."""
        data = bytes(self._kept[self._sent : self._sent + most])
        self._sent += len(data)
        return data

    def taken(self, position: int) -> None:
        """Forget what the program has taken."""
        size = min(max(0, position - self._start), len(self._kept))
        del self._kept[:size]
        self._start += size
        self._sent = max(0, self._sent - size)

    def attached(self, position: int) -> None:
        """Begin to send on a new connection, to a terminal that has had so much so far."""
        if not self._begun:
            self._begun = True
            self._start = position
        self.taken(position)
        self._sent = 0
