"""Every way in which a chat ends badly: its status, its reason, and whether another try helps.

Before the stream begins a fault is the whole answer, `ChatFailed`; after that it is the `error` of
a chunk, with the code that it would have had before.

Source: the public gateway's errors of the chat with interns.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.kernel.envelope import STATUS
from tollhouse.kernel.errors import TollhouseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.kernel.errors import Kind

RETRY_SECONDS: Final = 5
"""What `Retry-After` says where an intern is busy."""


def retry_seconds(wait: float) -> int:
    """Return what `Retry-After` says of a wait of so many seconds."""
    return max(1, ceil(wait))


class Fault(NamedTuple):
    """What went wrong, as callers are told."""

    status: int
    reason: str
    message: str
    retryable: bool = False
    retry_after: int | None = None
    """Whole seconds."""


def _passing(status: int, reason: str, message: str, retry_after: int | None = None) -> Fault:
    return Fault(status, reason, message, retryable=True, retry_after=retry_after)


BAD_REQUEST: Final = Fault(400, "bad_request", "The request is wrong.")
INTERACTION_UNKNOWN: Final = Fault(
    404, "interaction_unknown", "No question with this id waits in this session."
)
NOT_READY: Final = _passing(
    409,
    "intern_not_ready",
    "The intern runs a version that cannot talk yet: suspend it and provision it again.",
)
BUSY: Final = _passing(
    409,
    "busy",
    "The intern works on something else, or waits for an answer in this session.",
    RETRY_SECONDS,
)
INTERACTION_NOT_PENDING: Final = Fault(
    409, "interaction_not_pending", "The question is answered already, or came to its end."
)
ATTACHED: Final = Fault(
    409, "attachment_failed", "Another request is attached to the intern's run."
)
OVERRUN: Final = Fault(
    410, "attachment_failed", "What the intern's run has said meanwhile is not there any more."
)
RUN_ENDED: Final = Fault(
    410, "run_ended", "The run was ended: it was cancelled, or a deadline has passed."
)
CLIENT_CLOSED: Final = Fault(499, "client_closed_request", "The client has left.")
UNREACHABLE: Final = _passing(502, "intern_unreachable", "The intern cannot be reached now.")
SEVERED: Final = _passing(
    502, "stream_severed", "The connection to the intern broke; what it did meanwhile stays."
)
REJECTED: Final = Fault(
    502, "intern_rejected", "The intern did not take the request, or answered nonsense."
)
TURN_FAILED: Final = Fault(502, "turn_failed", "The intern's run failed.")
"""Whether another try helps is the intern's own judgement."""
FULL: Final = _passing(
    503,
    "busy",
    "The intern cannot begin now: too many of its runs wait for answers, or it has no room.",
    RETRY_SECONDS,
)
TIMED_OUT: Final = _passing(504, "timeout", "The intern did not answer in time.")

FAULTS: Final = (
    *(BAD_REQUEST, INTERACTION_UNKNOWN, NOT_READY, BUSY, INTERACTION_NOT_PENDING, ATTACHED),
    *(OVERRUN, RUN_ENDED, CLIENT_CLOSED, UNREACHABLE, SEVERED, REJECTED, TURN_FAILED, FULL),
    TIMED_OUT,
)
"""All of them; 401, 403, 404 `not_found`, 408, 413 and 429 are the edge's."""

IN_STREAM: Final[Mapping[str, Fault]] = {
    fault.reason: fault
    for fault in (
        *(ATTACHED, BUSY, CLIENT_CLOSED, INTERACTION_NOT_PENDING, INTERACTION_UNKNOWN),
        *(UNREACHABLE, RUN_ENDED, SEVERED, TIMED_OUT, TURN_FAILED),
    )
}
"""What a chunk may say, by its reason."""

_OF_PROMPTS: Final = (BUSY, ATTACHED, TURN_FAILED, FULL)
_OF_ANSWERS: Final = (
    *(BAD_REQUEST, INTERACTION_UNKNOWN, INTERACTION_NOT_PENDING, OVERRUN),
    *_OF_PROMPTS,
)
_KIND: Final[Mapping[int, Kind]] = {
    status: kind for kind, status in STATUS.items() if kind != "upstream_overloaded"
}
_UNAUTHORIZED: Final = 401
_NOT_FOUND: Final = 404
_TOO_LARGE: Final = 413
_NO_ROOM: Final = 507


class ChatFailed(TollhouseError):
    """A chat that ends before its stream begins."""

    def __init__(self, fault: Fault, message: str | None = None) -> None:
        """Say what is wrong.

        Args:
            fault: What it is.
            message: What it is in this case.
        """
        self.kind = _KIND[fault.status]
        super().__init__(
            message or fault.message,
            metadata={"reason": fault.reason, "retryable": fault.retryable},
            retry_after=fault.retry_after,
        )


def refused(
    status: int, reason: str | None, *, retryable: bool = False, answering: bool = False
) -> Fault:
    """Return what a daemon's refusal is to the caller.

    Args:
        status: Its status.
        reason: Its reason, where it had one.
        retryable: What it said of another try, where that is for it to say.
        answering: Whether it was an answer, which alone it may find wrong.
    """
    for fault in _OF_ANSWERS if answering else _OF_PROMPTS:
        if (fault.status, fault.reason) == (status, reason):
            return fault._replace(retryable=retryable) if fault is TURN_FAILED else fault
    if reason is None and status == _NOT_FOUND:
        return NOT_READY  # a daemon of a time when there were no sessions
    if answering and status == _TOO_LARGE:
        return BAD_REQUEST
    if status == _NO_ROOM:
        return REJECTED._replace(message="The intern's workspace is full: remove files first.")
    if status == _UNAUTHORIZED:
        return UNREACHABLE  # it has just been started anew, with another token
    return REJECTED
