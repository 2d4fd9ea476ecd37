"""Takes values out of what a host says on a WebSocket. Pure.

A message goes on whole as soon as it has come whole: the programs at both ends wait for each other.
In the frames of one message, and in messages that come at once, a value is found as in any stream.
Of a value that ends in a later message its end is hidden; its beginning has gone on by then.

A frame that is masked, or has a bit of an extension (none was agreed on), could hold a value that
is not seen. No host may send one, and a client has to end the connection for it: so it is ended
here, before a client that is less strict gets it.

Source: RFC 6455, sections 5.1 (masks), 5.2 (frames), 5.4 (fragments) and 7.4.1 (code 1002).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from tollhouse.kernel.redaction import Redactor

_SHORT: Final = 2
_SIZES: Final = {126: 2, 127: 8}
"""How many bytes of length follow, by what stands in its first place."""
_LONGEST_CONTROL: Final = 125
_MASK_SIZE: Final = 4
_LAST: Final = 0x80
_MASKED: Final = 0x80
_EXTENDED: Final = 0x70
"""The bits RSV1 to RSV3; the first says that a message is compressed."""
_CLOSING: Final = b"\x88\x02" + (1002).to_bytes(2, "big")
_CONTROL: Final = 0x08


@dataclass(eq=False, repr=False, slots=True)
class FrameRedactor:
    """Takes values out of frames."""

    redactor: Redactor
    broken: bool = False
    """Whether a frame came that cannot be searched; nothing of it or after it goes on."""
    _frame: bytearray = field(default_factory=bytearray)
    """What has come of a head, or of a control frame."""
    _left: int = 0
    """Bytes of a payload that are still to come."""
    _last: bool = False
    """Whether a message ends with them."""
    _order: deque[bytes | int] = field(default_factory=deque[bytes | int])
    """What goes on next: heads, and how many bytes of payloads stand between them."""
    _ready: bytearray = field(default_factory=bytearray)
    """Of payloads, what may go on."""

    def feed(self, data: bytes) -> bytes:
        """Return what may go on of what has come until now."""
        if self.broken:
            return b""
        payload, whole, at = bytearray(), -1, 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._order.append(len(piece))
                payload += piece
            else:
                self._frame.append(data[at])
                at += 1
                self._begin_payload()
            if self.broken:
                self._ready += self.redactor.flush(bytes(payload))
                return self._in_order() + _CLOSING
            if self._last and not self._left:
                whole, self._last = len(payload), False
        if whole >= 0:
            self._ready += self.redactor.flush(bytes(payload[:whole]))
            del payload[:whole]
        self._ready += self.redactor.feed(bytes(payload))
        return self._in_order()

    def flush(self) -> bytes:
        """Return what was held back, at the end of the stream."""
        if self.broken:
            return b""
        self._ready += self.redactor.flush()
        rest = self._in_order() + self._frame
        self._frame.clear()
        return rest

    def _begin_payload(self) -> None:
        """Look whether a head has come whole; a control frame is kept until all of it has."""
        frame = self._frame
        size = _head_size(frame)
        if len(frame) < size:
            return
        if frame[0] & _EXTENDED or frame[1] & _MASKED:
            self.broken = True
            return
        length = _length(frame)
        if frame[0] & _CONTROL and length <= _LONGEST_CONTROL:
            if len(frame) == size + length:
                self._order.append(bytes(frame[:size]) + self.redactor.mask(bytes(frame[size:])))
                self._last = True
                frame.clear()
            return
        self._order.append(bytes(frame))
        self._left, self._last = length, bool(frame[0] & _LAST)
        frame.clear()

    def _in_order(self) -> bytes:
        """Return heads and payloads as far as they may go on."""
        out = bytearray()
        while self._order:
            first = self._order[0]
            if isinstance(first, bytes):
                out += first
            else:
                out += self._ready[:first]
                missing = first - len(self._ready)
                del self._ready[:first]
                if missing > 0:
                    self._order[0] = missing
                    break
            self._order.popleft()
        return bytes(out)


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
