"""Takes values out of what a host says on a WebSocket, frame by frame. Pure.

A frame goes on whole as soon as it has come whole: the programs at both ends wait for each other.
What stands in two frames, or is compressed or masked, is not seen.

Source: RFC 6455, section 5.2 (frames).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tollhouse.vault.egress.redaction import Redactor

_SHORT: Final = 2
_SIZES: Final = {126: 2, 127: 8}
"""How many bytes of length follow, by what stands in its first place."""
_MASK_SIZE: Final = 4


class FrameRedactor:
    """Takes values out of frames."""

    __slots__ = ("_head", "_left", "_redactor")

    def __init__(self, redactor: Redactor) -> None:
        """Take what knows the values."""
        self._redactor = redactor
        self._head = bytearray()
        self._left = 0
        """Bytes of the frame that are still to come."""

    def feed(self, data: bytes) -> bytes:
        """Return what may go on of what has come until now."""
        out = bytearray()
        while data:
            if self._left:
                piece, data = data[: self._left], data[self._left :]
                self._left -= len(piece)
                out += self._redactor.feed(piece)
                if not self._left:
                    out += self._redactor.flush()
            else:
                self._head.append(data[0])
                data = data[1:]
                if len(self._head) == _head_size(self._head):
                    out += self._head
                    self._left = _length(self._head)
                    self._head.clear()
        return bytes(out)

    def flush(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        rest = self._redactor.flush() + self._head
        self._head.clear()
        return rest


def _head_size(head: bytearray) -> int:
    """Return how many bytes a head has, as far as its beginning tells."""
    if len(head) < _SHORT:
        return _SHORT
    masked = _MASK_SIZE if head[1] & 0x80 else 0
    return _SHORT + _SIZES.get(head[1] & 0x7F, 0) + masked


def _length(head: bytearray) -> int:
    """Return how many bytes follow a head."""
    short = head[1] & 0x7F
    size = _SIZES.get(short)
    return short if size is None else int.from_bytes(head[_SHORT : _SHORT + size], "big")
