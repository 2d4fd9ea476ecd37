"""A string that does not show itself."""

from __future__ import annotations

from typing import Final


class Secret:
    """Holds a credential; only `reveal()` gives it out, `repr` and `str` never do.

    It has no equality and no hash of its content, so that it cannot be compared, cached or
    counted by accident.
    """

    __slots__ = ("_value",)

    MASK: Final = "********"

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the plaintext, for the one place that needs it."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self.MASK})"

    def __str__(self) -> str:
        return self.MASK

    def __reduce__(self) -> str:
        """Refuse to be pickled: a pickle would carry the plaintext."""
        raise TypeError("a Secret cannot be pickled")
