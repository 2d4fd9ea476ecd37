"""What the gate asks of a guardrail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

OnFailure = Literal["refuse", "allow"]


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """What a guardrail says of a request."""

    outcome: Literal["allowed", "refused", "failed"]
    patterns: tuple[str, ...] = ()
    """What it found in a request that it refused, in its own words; may be empty."""
    reason: str = ""
    """Why there is no verdict, where it failed; holds nothing of request and answer."""


ALLOWED = GuardrailVerdict("allowed")


class Guardrail(Protocol):
    """A configured guardrail."""

    @property
    def on_failure(self) -> OnFailure:
        """What becomes of a request on which it gave no verdict."""
        ...

    async def ask(self, question: bytes) -> GuardrailVerdict:
        """Return its verdict within its time limit; to fail is one, too.

        Cancelling the caller ends the exchange at once.

        Args:
            question: JSON, see `verdicts.question`.
        """
        ...

    async def close(self) -> None:
        """Give up every connection."""
        ...
