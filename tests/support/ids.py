"""Predictable identifiers."""

from itertools import count

_PREFIX_DIGITS = 8
_KEY_LENGTH = 43


class SequentialIds:
    """Numbered identifiers in the format of real ones; implements `kernel.ids.IdSource`.

    Two sources with different prefixes never give the same identifier.
    """

    def __init__(self, prefix: str = "0") -> None:
        """Start at one.

        Args:
            prefix: Up to eight hex digits that every identifier begins with.
        """
        if len(prefix) > _PREFIX_DIGITS or not set(prefix) <= set("0123456789abcdef"):
            message = f"{prefix!r} is not made of up to eight lower-case hex digits"
            raise ValueError(message)
        self._prefix = prefix.ljust(_PREFIX_DIGITS, "0")
        self._numbers = count(1)

    def uuid(self) -> str:
        """Return the next number as a version 4 UUID."""
        return f"{self._prefix}-0000-4000-8000-{next(self._numbers):012x}"

    def generation(self, unix_seconds: int) -> str:
        """Return the next number as a generation id."""
        return f"gen-{unix_seconds}-{self._prefix}{next(self._numbers):012x}"

    def key_material(self) -> str:
        """Return the next number at the length of real key material; it is not secret."""
        return f"{next(self._numbers)}-{self._prefix}".rjust(_KEY_LENGTH, "x")
