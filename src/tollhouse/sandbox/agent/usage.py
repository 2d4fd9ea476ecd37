"""What a run has used, before and after its pauses, and its limits. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_REQUESTS: Final = 100
"""Requests of a run to its model."""
MOST_OUTPUT_BYTES: Final = 4 * 1024 * 1024
"""Bytes that a run's model may say: text, reasoning and calls of tools together."""
_TOKENS: Final = ("input_tokens", "cached_tokens", "output_tokens")


class RunFailed(Exception):
    """A run cannot go on. The text is for people."""

    def __init__(
        self, message: str, *, retryable: bool, limit: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.limit: Mapping[str, str] = limit or {}
        """What the gateway says of the limit of credits that refused: which one, and what helps."""


@dataclass(slots=True)
class RunUsage:
    """What a run has used."""

    requests: int = 0
    output_bytes: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """In credits; None as long as no answer has told it."""

    def count_request(self) -> None:
        """Count a request that is about to be made; raise `RunFailed` for one too many."""
        if self.requests >= MOST_REQUESTS:
            message = f"The run has asked its model {MOST_REQUESTS} times, and is ended."
            raise RunFailed(message, retryable=False)
        self.requests += 1

    def count_output(self, text: str) -> None:
        """Count a piece of the model's output; raise `RunFailed` if there is too much."""
        self.output_bytes += len(text.encode(errors="replace"))
        if self.output_bytes > MOST_OUTPUT_BYTES:
            message = (
                f"The model said more than {MOST_OUTPUT_BYTES} bytes in one run, and is stopped."
            )
            raise RunFailed(message, retryable=False)

    def add_cost(self, cost: object) -> None:
        """Count what a request cost, as its answer tells: credits, or no number at all."""
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            told = Decimal(str(cost))
            if told.is_finite():
                self.cost = told + (self.cost or 0)

    def as_message(self) -> dict[str, Any]:
        """Return it as the daemon keeps it, and gives it back when the run goes on."""
        usage = {name: getattr(self, name) for name in _TOKENS}
        usage["cost"] = None if self.cost is None else f"{self.cost:f}"
        told = usage if self.requests else None
        return {"requests": self.requests, "output_bytes": self.output_bytes, "usage": told}


def usage_before(message: Mapping[str, Any]) -> RunUsage:
    """Return what a run had used before it paused; `message` is empty for one that begins."""
    usage: Mapping[str, Any] = message.get("usage") or {}
    cost = usage.get("cost")
    return RunUsage(
        message.get("requests", 0),
        message.get("output_bytes", 0),
        **{name: usage.get(name, 0) for name in _TOKENS},
        cost=None if cost is None else Decimal(cost),
    )
