"""What the end of a run by an error is to a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRequestRejectedError,
    UnexpectedModelBehavior,
)

from tollhouse.sandbox.agent.history import Unreadable, Unwritable
from tollhouse.sandbox.agent.spending import TooMuch

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST: Final = 2000
"""Characters of a message."""
_PASSING: Final = frozenset((408, 409, 425, 429))
_SERVER_ERRORS: Final = 500


class BrokenOff(Exception):
    """A model's answer has no end."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed."""

    message: str
    """For people. What a gateway says of its own refusal is passed on."""
    retryable: bool
    """Whether the same may work later."""


_OURS: Final[Mapping[type[BaseException], Failure]] = {
    BrokenOff: Failure("The model's answer broke off.", retryable=True),
    Unwritable: Failure("The model's answer cannot be written down.", retryable=True),
    Unreadable: Failure(
        "What was said in this session cannot be read any more; begin another session.",
        retryable=False,
    ),
}


def failure_of(error: BaseException) -> Failure | None:
    """Return what an error is to a client; None for a bug."""
    match error:
        case TooMuch():
            return Failure(str(error), retryable=False)
        case ModelAPIError():
            return Failure(_said(error)[:_LONGEST], _may_work_later(error))
        case UnexpectedModelBehavior():
            message = f"The model's answer cannot be used: {error.message}"
            return Failure(message[:_LONGEST], retryable=True)
        case _:
            return _OURS.get(type(error))


def _said(error: ModelAPIError) -> str:
    """Return the gateway's message; without one, what the library says."""
    body = cast("object", error.body)
    if isinstance(body, str) and error.in_stream:
        return body  # the message alone
    if isinstance(body, dict):
        told = cast("dict[str, Any]", body)
        inner = told["error"] if isinstance(told.get("error"), dict) else told
        if isinstance(message := inner.get("message"), str):
            return message
    if isinstance(error, ModelHTTPError):
        return f"The model's gateway answered with status {error.status_code}."
    return f"The model cannot be reached: {error.message}"


def _may_work_later(error: ModelAPIError) -> bool:
    if isinstance(error, ModelQuotaExceededError):
        return error.retry_after is not None  # a budget that fills up again says when
    if isinstance(error, ModelRequestRejectedError):
        return False
    if isinstance(error, ModelHTTPError):
        return error.status_code in _PASSING or error.status_code >= _SERVER_ERRORS
    return True
