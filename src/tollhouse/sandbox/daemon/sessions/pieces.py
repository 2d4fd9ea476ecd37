"""Text that comes in small pieces, put together, so that it makes fewer events. Pure."""

from __future__ import annotations

from typing import Final

PIECE_SECONDS: Final = 0.03
"""How long text waits for more of it."""
PIECE_CHARACTERS: Final = 4096
"""As soon as there is so much, it waits no longer."""


class Pieces:
    """Text of one kind, that waits."""

    def __init__(self) -> None:
        """There is none."""
        self.kind = ""
        self._texts: list[str] = []
        self._size = 0
        self._due = 0.0

    def add(self, kind: str, text: str, now: float) -> bool:
        """Take a piece of the kind that waits, or of any where none does.

        Args:
            kind: `text` or `reasoning`.
            text: The piece.
            now: On a clock of seconds that only goes forward.

        Returns:
            Whether it is time to take all.
        """
        if not self._texts:
            self.kind = kind
            self._due = now + PIECE_SECONDS
        self._texts.append(text)
        self._size += len(text)
        return self._size >= PIECE_CHARACTERS or now >= self._due

    def wait(self, now: float) -> float | None:
        """Return in how many seconds it is time; None where nothing waits."""
        return max(0.0, self._due - now) if self._texts else None

    def take(self) -> str:
        """Return all, and have none."""
        text = "".join(self._texts)
        self._texts.clear()
        self._size = 0
        return text
