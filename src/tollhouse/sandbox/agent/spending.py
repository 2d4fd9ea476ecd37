"""What a run has used, over all its parts, and what it may. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_REQUESTS: Final = 100
"""Of a run's to its model."""
MOST_OUTPUT_BYTES: Final = 4 * 1024 * 1024
"""Of all that a run's model says: text, reasoning, calls of tools."""


class TooMuch(Exception):
    """A run is over a bound. The text is for people."""


@dataclass(slots=True)
class Spending:
    """Counts."""

    requests: int = 0
    output_bytes: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """In credits; None where nobody told."""

    def ask(self) -> None:
        """Count a request that is about to be made.

        Raises:
            TooMuch: There were as many as there may be.
        """
        if self.requests >= MOST_REQUESTS:
            raise TooMuch(f"The run has asked its model {MOST_REQUESTS} times, and is ended.")
        self.requests += 1

    def hear(self, text: str) -> None:
        """Count a piece of what the model says.

        Raises:
            TooMuch: It says too much.
        """
        self.output_bytes += len(text.encode(errors="replace"))
        if self.output_bytes > MOST_OUTPUT_BYTES:
            raise TooMuch(
                f"The model said more than {MOST_OUTPUT_BYTES} bytes in one run, and is stopped."
            )

    def pay(self, cost: object) -> None:
        """Count what a request cost, as its answer tells: credits, or no number at all."""
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            told = Decimal(str(cost))
            if told.is_finite():
                self.cost = told + (self.cost or 0)

    def told(self) -> dict[str, Any]:
        """Return it as the daemon keeps it, and gives it back to a run that goes on."""
        return {
            "requests": self.requests,
            "output_bytes": self.output_bytes,
            "usage": {
                "input_tokens": self.input_tokens,
                "cached_tokens": self.cached_tokens,
                "output_tokens": self.output_tokens,
                "cost": None if self.cost is None else f"{self.cost:f}",
            }
            if self.requests
            else None,
        }


def spent_before(told: Mapping[str, Any]) -> Spending:
    """Return what a run has used before; nothing is told of one that begins."""
    usage: Mapping[str, Any] = told.get("usage") or {}
    cost = usage.get("cost")
    return Spending(
        requests=told.get("requests", 0),
        output_bytes=told.get("output_bytes", 0),
        input_tokens=usage.get("input_tokens", 0),
        cached_tokens=usage.get("cached_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
        cost=None if cost is None else Decimal(cost),
    )
