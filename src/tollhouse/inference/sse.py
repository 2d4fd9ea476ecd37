r"""Server-sent events: a parser that does not care where the bytes were cut.

    parser = EventParser()
    parser.feed(b"data: 1\n\ndata: 2")   -> [b"1"]
    parser.feed(b"\n\n")                 -> [b"2"]

Only `data` matters to the dialects that we relay; comments and other fields are passed over.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # A reverse proxy that buffers would hold the stream back.
    (b"x-accel-buffering", b"no"),
)
"""The headers of a stream that we write."""
LARGEST_EVENT = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event grew past what we hold in memory."""


class EventParser:
    """Turns the bytes of one stream into the data of its events."""

    def __init__(self, largest_event: int = LARGEST_EVENT) -> None:
        """Start at the beginning of a stream."""
        self._largest = largest_event
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of every event that this piece completes.

        Raises:
            EventTooLarge: An event is larger than the parser may hold.
        """
        if (whole := self._whole_events(piece)) is not None:
            return whole
        events: list[bytes] = []
        for line in self._lines(piece):
            self._check_size(len(line))
            if line:
                self._field(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._size = 0
        self._check_size(len(self._rest))
        return events

    def _whole_events(self, piece: bytes) -> list[bytes] | None:
        """Return the events of a piece that is nothing but whole ones of one line; None otherwise.

        Nearly every piece is one: providers write an event at a time.
        """
        if self._rest or self._data or self._at_start or len(piece) > self._largest:
            return None
        if not piece.endswith(b"\n\n") or b"\r" in piece or self._after_cr:
            return None
        events: list[bytes] = []
        for block in piece[:-2].split(b"\n\n"):
            if not block.startswith(b"data: ") or b"\n" in block:
                return None
            events.append(block[6:])
        return events

    def _check_size(self, line: int) -> None:
        if self._size + line > self._largest:
            message = f"an event is larger than {self._largest} bytes"
            raise EventTooLarge(message)

    def _lines(self, piece: bytes) -> list[bytes]:
        if self._after_cr and piece[:1] == b"\n":
            piece = piece[1:]
            self._after_cr = False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        buffer = piece
        if self._rest:
            self._rest += piece
            if not self._at_start and b"\n" not in piece and b"\r" not in piece:
                # A long line is gathered, and looked at once: not again with every piece of it.
                return []
            buffer = bytes(self._rest)
        if self._at_start:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._rest = bytearray(buffer)
                return []
            self._at_start = False
            buffer = buffer.removeprefix(_BOM)
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = buffer.split(b"\n")
        self._rest = bytearray(rest)
        return lines

    def _field(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
        elif line == b"data":
            value = b""
        else:
            return
        self._data.append(value)
        self._size += len(value) + 1


def event(data: bytes) -> bytes:
    """Return one event; the data holds no line break, as is true of all JSON that we write."""
    return b"data: " + data + b"\n\n"
