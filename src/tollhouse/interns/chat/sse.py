r"""Server-sent events with their names and numbers, in bounded memory. Pure.

    reader.feed(b"id: 1\nevent: text\nda")         -> []
    reader.feed(b'ta: {"text": "Hello"}\n\n')      -> [Sent("1", "text", b'{"text": "Hello"}')]

It does not matter where the bytes were cut. Lines end with LF, or CR LF. `inference.sse` reads
streams of which only the data matters.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from __future__ import annotations

from typing import Final, NamedTuple

LARGEST_EVENT: Final = 1_048_576
"""Bytes of an event, with all that belongs to it."""


class Oversized(ValueError):
    """An event that is larger than what we hold of one."""


class Sent(NamedTuple):
    """An event as it came."""

    id: bytes
    """Empty where it has none."""
    type: bytes
    """Empty where it has none."""
    data: bytes


class EventReader:
    """Turns the bytes of one stream into its events."""

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        """Start at the beginning of a stream."""
        self._largest = largest
        self._rest = bytearray()
        self._looked_at = 0
        self._begin()

    def _begin(self) -> None:
        self._id = b""
        self._type = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[Sent]:
        """Return the events that this piece completes.

        Raises:
            Oversized: An event is larger than the reader may hold.
        """
        found: list[Sent] = []
        rest = self._rest
        rest += piece
        begin = 0
        while (end := rest.find(b"\n", max(begin, self._looked_at))) >= 0:
            line = bytes(rest[begin:end]).removesuffix(b"\r")
            begin = end + 1
            self._size += len(line)
            if line:
                self._check(0)
                self._field(line)
                continue
            if self._data:
                found.append(Sent(self._id, self._type, b"\n".join(self._data)))
            self._begin()
        del rest[:begin]
        self._looked_at = len(rest)  # a long line is looked through once
        self._check(len(rest))
        return found

    def _check(self, more: int) -> None:
        if self._size + more > self._largest:
            message = f"an event is larger than {self._largest} bytes"
            raise Oversized(message)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._type = value
            case b"id":
                self._id = value
            case _:
                return  # a comment, or a field that nobody needs
