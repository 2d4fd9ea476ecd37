"""Keys that mean something here, and everything else that is typed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ESCAPE: Final = b"\x1d"
"""Ctrl-]. No shell and no editor needs it, and telnet has used it for the same."""
_DETACH: Final = frozenset(b"qQ")


@dataclass(frozen=True, slots=True)
class Typed:
    """What was typed."""

    data: bytes
    """For the program."""
    leaves: bool
    """Whether the keys to detach were the last that count."""


class Keys:
    """Looks for Ctrl-] q. Ctrl-] twice is one for the program, as it is before any other key."""

    def __init__(self) -> None:
        """Begin."""
        self._escaped = False

    def typed(self, data: bytes) -> Typed:
        """Take what was typed, in pieces of any size."""
        passed = bytearray()
        for key in data:
            if not self._escaped:
                self._escaped = key == ESCAPE[0]
                if not self._escaped:
                    passed.append(key)
                continue
            self._escaped = False
            if key in _DETACH:
                return Typed(bytes(passed), leaves=True)
            passed += ESCAPE
            if key != ESCAPE[0]:
                passed.append(key)
        return Typed(bytes(passed), leaves=False)
