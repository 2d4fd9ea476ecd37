"""How a conversation with a terminal ends, or a connection in the middle of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exited:
    """The shell has ended."""

    code: int


class Left:
    """The person has left; the shell runs on."""


class Dropped(Exception):
    """There is no connection any more, or none came about."""

    def __init__(self, text: str, *, was_attached: bool = False) -> None:
        """Say why, and whether it had come as far as the terminal."""
        super().__init__(text)
        self.was_attached = was_attached
