"""The beginning and the end of something long. Pure."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 16 * 1024
TAIL_BYTES: Final = 16 * 1024


class Excerpt:
    """Keeps a bounded part of bytes that come in pieces."""

    def __init__(self, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        """Keep nothing so far.

        Args:
            head: Bytes of the beginning that are kept.
            tail: The same of the end.
        """
        self.size = 0
        """Bytes that came."""
        self._most = (head, tail)
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Take a piece."""
        self.size += len(data)
        head, tail = self._most
        room = head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * tail:  # not at each piece: it moves what stays
            del self._tail[:-tail]

    def text(self) -> str:
        """Return what is kept, with a note of what is not."""
        _, tail = self._most
        end = self._tail[-tail:]
        left_out = self.size - len(self._head) - len(end)
        if not left_out:
            return _decoded(self._head + end)
        note = f"\n[... {left_out} bytes are left out here ...]\n"
        return f"{_decoded(self._head)}{note}{_decoded(end)}"


def _decoded(data: bytes | bytearray) -> str:
    return data.decode(errors="replace").replace("\0", "\ufffd")
