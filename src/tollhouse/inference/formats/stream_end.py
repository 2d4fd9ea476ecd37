"""That a stream ends once, which every stream keeps for itself."""

from __future__ import annotations

from tollhouse.kernel.errors import Bug


class StreamEnd:
    """The end of one stream, which is written once."""

    __slots__ = ("_came", "_kind")

    def __init__(self, kind: str) -> None:
        """Belong to a stream of a format."""
        self._kind = kind
        self._came = False

    def mark_written(self) -> None:
        """Note that the end is written.

        Raises:
            Bug: It was before.
        """
        if self._came:
            raise Bug(f"a {self._kind} stream was ended twice")
        self._came = True
