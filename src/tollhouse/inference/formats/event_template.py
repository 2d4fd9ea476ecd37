"""What the events of a stream have in common: all but the values of a few fields. Pure.

    {"id":"c","choices":[{"index":0,"delta":  {"content":"Hi"}  ,"finish_reason":null}]}
    ------------------ constant ------------       value         ------- constant ------

A provider writes hundreds of events that differ in these values alone. JSON between the same
constants has the same structure, whatever valid values stand in their places, so that only the
values are decoded, and what the client gets is made of constants of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw


class EventTemplate:
    """The constants of one kind of event."""

    def __init__(self, constants: Sequence[bytes]) -> None:
        self._first, *self._between, self._last = constants
        self._pattern = b"%b".join(text.replace(b"%", b"%%") for text in constants)

    @classmethod
    def of(cls, data: bytes, values: Mapping[str, Raw]) -> EventTemplate | None:
        """Return the template of an event in which some fields have these values.

        The fields are in the order of the event, and may be nested. None if there is none, or one
        cannot be located: its name stands there twice, or with other spaces than usual.
        """
        if not values:
            return None
        constants: list[bytes] = []
        at = 0
        for name, value in values.items():
            key = b'"%b":' % name.encode()
            start = data.find(key, at)
            if start < 0 or data.find(key[:-1]) != start or data.rfind(key[:-1]) != start:
                return None
            start += len(key)
            start += data.startswith(b" ", start)
            if not data.startswith(bytes(value), start):
                return None
            constants.append(data[at:start])
            at = start + len(value)
        return cls([*constants, data[at:]])

    def values(self, data: bytes) -> list[bytes] | None:
        """Return what stands in the places of the values; None if a constant is another one.

        The caller must decode them: only if each is valid JSON, they are the values.
        """
        at, end = len(self._first), len(data) - len(self._last)
        if not (data.startswith(self._first) and data.endswith(self._last)):
            return None
        if not self._between:
            return [data[at:end]]
        values: list[bytes] = []
        for text in self._between:
            found = data.find(text, at, end)
            if found < 0:
                return None
            values.append(data[at:found])
            at = found + len(text)
        values.append(data[at:end])
        return values

    def fill(self, values: Sequence[bytes | Raw]) -> bytes:
        """Return the event with these values."""
        return self._pattern % tuple(values)
