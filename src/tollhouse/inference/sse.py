r"""Server-sent events: a parser that does not care where the bytes were cut.

    parser = EventParser()
    parser.feed(b"data: 1\n\ndata: 2")   -> [b"1"]
    parser.feed(b"\n\n")                 -> [b"2"]

Only `data` matters to the dialects that we relay; comments and other fields are passed over.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

from typing import Final

EVENT_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # A reverse proxy that buffers would hold the stream back.
    (b"x-accel-buffering", b"no"),
)
"""The headers of a stream that we write."""
LARGEST_EVENT = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


_NEXT: Final = tuple(
    b"data:" + space + begun for space in (b"", b" ") for begun in (b"{", b"[DONE]")
)
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_event_stream(body: bytes) -> bool:
    """Tell whether a body is a stream of events, whatever its head says."""
    return body[:_LONGEST_SPACE].removeprefix(_BOM).lstrip().startswith(_FIELDS)


_LONGEST_SPACE: Final = 100


class EventTooLarge(ValueError):
    """An event grew past what we hold in memory."""


class EventParser:
    """Turns the bytes of one stream into the data of its events."""

    def __init__(self, largest_event: int = LARGEST_EVENT) -> None:
        self._largest = largest_event
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False
        self._is_between_events = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of every event that this piece completes.

        Raises:
            EventTooLarge: An event is larger than the parser may hold.
        """
        events: list[bytes] = []
        at = 0
        if not self._is_between_events or len(piece) > self._largest:
            # The first line break of two may belong to what came before.
            at = piece.find(b"\n\n") + 2
            at = at if at > 1 else len(piece)
            self._read(piece[:at], events)
        if self._is_between_events and piece.find(b"\r", at) < 0:
            at = _read_whole(piece, at, events)
        if at < len(piece):
            self._read(piece[at:], events)
        return events

    def end(self) -> list[bytes]:
        """Return the data of the last event, where the blank line after it is missing."""
        events: list[bytes] = []
        self._read(b"\n\n", events)
        return events

    def _read(self, piece: bytes, events: list[bytes]) -> None:
        """Read line by line, whatever the piece is; add the data of its events."""
        self._is_between_events = False
        for line in self._lines(piece):
            self._check_size(len(line))
            if line:
                if self._is_whole(line):
                    events.append(self._data.pop())
                    self._size = 0
                self._field(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._size = 0
        self._check_size(len(self._rest))
        self._is_between_events = not (self._rest or self._data or self._at_start or self._after_cr)

    def _is_whole(self, line: bytes) -> bool:
        """Tell whether the data so far are an event, though no blank line stands before the next.

        Some servers leave these out; no JSON goes on with an object behind another.
        """
        if len(self._data) != 1 or not line.startswith(_NEXT):
            return False
        return self._data[0].startswith(b"{") and self._data[0].rstrip().endswith(b"}")

    def _check_size(self, line: int) -> None:
        if self._size + line > self._largest:
            raise EventTooLarge(f"an event is larger than {self._largest} bytes")

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
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(self._data[-1]) + 1


def _read_whole(piece: bytes, at: int, events: list[bytes]) -> int:
    """Add the data of whole events from a position on; return where the first other thing begins.

    Each is one line of data, perhaps after a line with its name, as nearly all providers write it.
    """
    while at < len(piece):
        named = piece.startswith(b"event: ", at)
        start = piece.find(b"\n", at) + 1 or len(piece) if named else at
        end = piece.find(b"\n", start)
        if not piece.startswith(b"data: ", start) or not piece.startswith(b"\n\n", end):
            break
        events.append(piece[start + 6 : end])
        at = end + 2
    return at


def event(data: bytes) -> bytes:
    """Return one event; the data holds no line break, as is true of all JSON that we write."""
    return b"data: " + data + b"\n\n"
