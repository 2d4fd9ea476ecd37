"""Every way in which a chat ends badly: its status, its reason, and whether another try helps.

Before the stream begins a fault is the whole answer, `ChatFailed`; after that it is the `error` of
a chunk, with the code that it would have had before.

Source: the public gateway's errors of the chat with interns.
"""

from __future__ import annotations

from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.kernel.errors import STATUS, Kind, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Mapping


RETRY_SECONDS: Final = 5
"""What `Retry-After` says where an intern is busy."""


def retry_seconds(wait: float) -> int:
    """Return what `Retry-After` says of a wait of so many seconds."""
    return max(1, ceil(wait))


class ChatFault(NamedTuple):
    """What went wrong, as callers are told."""

    status: int
    reason: str
    message: str
    retryable: bool = False
    retry_after: int | None = None
    """Whole seconds."""


BAD_REQUEST: Final = ChatFault(400, "bad_request", "The request is wrong.")
INTERACTION_UNKNOWN: Final = ChatFault(
    404, "interaction_unknown", "No question with this id waits in this session."
)
NOT_READY: Final = ChatFault(
    409,
    "intern_not_ready",
    "The intern runs a version that cannot talk yet: suspend it and provision it again.",
    retryable=True,
)
BUSY: Final = ChatFault(
    409,
    "busy",
    "The intern works on something else, or waits for an answer in this session.",
    retryable=True,
    retry_after=RETRY_SECONDS,
)
INTERACTION_NOT_PENDING: Final = ChatFault(
    409, "interaction_not_pending", "The question is answered already, or came to its end."
)
ALREADY_ATTACHED: Final = ChatFault(
    409, "attachment_failed", "Another request is attached to the intern's run."
)
OVERRUN: Final = ChatFault(
    410, "attachment_failed", "What the intern's run has said meanwhile is not there any more."
)
RUN_ENDED: Final = ChatFault(
    410, "run_ended", "The run was ended: it was cancelled, or a deadline has passed."
)
CLIENT_CLOSED: Final = ChatFault(499, "client_closed_request", "The client has left.")
UNREACHABLE: Final = ChatFault(
    502, "intern_unreachable", "The intern cannot be reached now.", retryable=True
)
SEVERED: Final = ChatFault(
    502,
    "stream_severed",
    "The connection to the intern broke; what it did meanwhile stays.",
    retryable=True,
)
REJECTED: Final = ChatFault(
    502, "intern_rejected", "The intern did not take the request, or answered nonsense."
)
TURN_FAILED: Final = ChatFault(502, "turn_failed", "The intern's run failed.")
"""Whether another try helps is the intern's own judgement."""
NO_CAPACITY: Final = ChatFault(
    503,
    "busy",
    "The intern cannot begin now: too many of its runs wait for answers, or it has no room.",
    retryable=True,
    retry_after=RETRY_SECONDS,
)
TIMED_OUT: Final = ChatFault(504, "timeout", "The intern did not answer in time.", retryable=True)

FAULTS: Final = (
    *(BAD_REQUEST, INTERACTION_UNKNOWN, NOT_READY, BUSY, INTERACTION_NOT_PENDING, ALREADY_ATTACHED),
    *(OVERRUN, RUN_ENDED, CLIENT_CLOSED, UNREACHABLE, SEVERED, REJECTED, TURN_FAILED, NO_CAPACITY),
    TIMED_OUT,
)
"""All of them; 401, 403, 404 `not_found`, 408, 413 and 429 are the edge's."""

IN_STREAM: Final[Mapping[str, ChatFault]] = {
    fault.reason: fault
    for fault in (
        *(ALREADY_ATTACHED, BUSY, CLIENT_CLOSED, INTERACTION_NOT_PENDING, INTERACTION_UNKNOWN),
        *(UNREACHABLE, RUN_ENDED, SEVERED, TIMED_OUT, TURN_FAILED),
    )
}
"""What a chunk may say, by its reason."""

_OF_PROMPTS: Final = (BUSY, ALREADY_ATTACHED, TURN_FAILED, NO_CAPACITY)
_OF_ANSWERS: Final = (
    *(BAD_REQUEST, INTERACTION_UNKNOWN, INTERACTION_NOT_PENDING, OVERRUN),
    *_OF_PROMPTS,
)
_KIND: Final[Mapping[int, Kind]] = {
    status: kind for kind, status in STATUS.items() if kind != "upstream_overloaded"
}


class ChatFailed(TollhouseError):
    """A chat that ends before its stream begins."""

    def __init__(self, fault: ChatFault, message: str | None = None) -> None:
        """Say what is wrong; `message` says it of this case."""
        self.kind = _KIND[fault.status]
        super().__init__(
            message or fault.message,
            metadata={"reason": fault.reason, "retryable": fault.retryable},
            retry_after=fault.retry_after,
        )


def fault_of_refusal(
    status: int, reason: str | None, *, retryable: bool = False, answering: bool = False
) -> ChatFault:
    """Return what a daemon's refusal is to the caller.

    `retryable` is what it said of another try, where that is for it to say. Only an answer may be
    found wrong.
    """
    for fault in _OF_ANSWERS if answering else _OF_PROMPTS:
        if (fault.status, fault.reason) == (status, reason):
            return fault._replace(retryable=retryable) if fault is TURN_FAILED else fault
    if reason is None and status == HTTPStatus.NOT_FOUND:
        return NOT_READY  # a daemon of a time when there were no sessions
    if answering and status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return BAD_REQUEST
    if status == HTTPStatus.INSUFFICIENT_STORAGE:
        return REJECTED._replace(message="The intern's workspace is full: remove files first.")
    if status == HTTPStatus.UNAUTHORIZED:
        return UNREACHABLE  # it has just been started anew, with another token
    return REJECTED
