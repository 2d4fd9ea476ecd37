"""How long to wait for an intern that is at work for somebody else.

A refusal of this kind comes before anything was begun, so the same may be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Callable

NOTICED_SECONDS: Final = 35.0
"""Within these a server notices that somebody has hung up, and the run is stopped."""
_OCCUPIED: Final = frozenset({"busy", "rate_limited"})
_UNLESS_TOLD_SECONDS: Final = 5.0
_SHORTEST_SECONDS: Final = 0.1


def silent(_text: str) -> None:
    """Show nobody a line."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Decides how long to wait."""

    limit_seconds: float = 0.0
    """Of waiting for one request, at most."""
    say: Callable[[str], None] = silent
    """Shows people a line."""
    hint: str = ""
    """What else to do where it is not waited any longer."""

    def seconds(self, refused: CommandFailed, waited_seconds: float) -> float:
        """Return how long to wait until the same is sent again.

        Args:
            refused: The refusal.
            waited_seconds: How long it was waited already.

        Raises:
            CommandFailed: The refusal stands.
        """
        if refused.reason not in _OCCUPIED:
            raise refused
        told = refused.retry_after_seconds
        seconds = max(_UNLESS_TOLD_SECONDS if told is None else told, _SHORTEST_SECONDS)
        if waited_seconds + seconds > self.limit_seconds:
            raise CommandFailed(
                f"{refused} {self.hint}".rstrip(),
                passes=True,
                status=refused.status,
                reason=refused.reason,
                retry_after_seconds=told,
            )
        self.say(f"It is busy; trying again in {seconds:.0f} s.")
        return seconds
