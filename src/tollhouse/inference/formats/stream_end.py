"""A guard against ending a stream twice."""

from __future__ import annotations

from tollhouse.kernel.errors import Bug


class StreamEnd:
    """Ensures that the end of one stream is written once."""

    __slots__ = ("_came", "_kind")

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._came = False

    def mark_written(self) -> None:
        """Record that the end is written.

        Raises:
            Bug: The end was written before.
        """
        if self._came:
            raise Bug(f"a {self._kind} stream was ended twice")
        self._came = True
