"""What the log holds, and what a run's end is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a session."""

    number: int
    """From 1, in its session, without a hole."""
    kind: str
    data: str = field(repr=False)
    """JSON."""


@dataclass(frozen=True, slots=True)
class Run:
    """The agent's work on a prompt."""

    id: str
    session: str
    mode: str
    spent: dict[str, Any] = field(repr=False)
    """As the agent tells it, and takes it when the run goes on."""


@dataclass(frozen=True, slots=True)
class Question:
    """Something that a call of a tool waits for."""

    id: str
    run: str
    state: str
    """`later`, `asked`, `answered` or `over`."""
    body: dict[str, Any] = field(repr=False)
    """As the agent asks it."""
    expires_at: str | None


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run did not complete."""

    outcome: str
    """`failed` or `cancelled`."""
    code: int
    """The status that it would have had before the stream."""
    reason: str
    message: str
    retryable: bool = False

    def error(self) -> dict[str, object]:
        """Return what clients are told."""
        return {
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
            "retryable": self.retryable,
        }


CANCELLED: Final = Ending(
    outcome="cancelled", code=410, reason="run_ended", message="The run was cancelled."
)
UNANSWERED: Final = Ending(
    outcome="cancelled",
    code=410,
    reason="run_ended",
    message="Nobody answered the question in time, so the run was cancelled.",
)
CLIENT_LEFT: Final = Ending(
    outcome="cancelled",
    code=499,
    reason="client_closed_request",
    message="The client left, so the run was cancelled.",
)
SEVERED: Final = Ending(
    outcome="failed",
    code=502,
    reason="stream_severed",
    message="The intern was interrupted at its work.",
    retryable=True,
)


def failed(message: str, *, retryable: bool) -> Ending:
    """Return the end of a run that the agent has ended by an error."""
    return Ending(
        outcome="failed", code=502, reason="turn_failed", message=message, retryable=retryable
    )
