"""What the errors of operations on interns and secrets say beside their message.

    {"error": {"code": 404, "message": "...",
               "metadata": {"reason": "not_found", "retryable": false}}}

An error that knows better has its own reason already. Chats with interns have other words for
some of it, and say nothing of what lies outside of the programme.

Source: the public gateway's errors of the intern life cycle and of the chat with interns;
401 and 403 have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tollhouse.api import policy
from tollhouse.interns.chat.errors import RETRY_SECONDS, retry_seconds
from tollhouse.kernel.errors import NotOffered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.kernel.errors import Kind, TollhouseError

REASONS: Final[Mapping[Kind, tuple[str, bool]]] = {
    "invalid": ("invalid_body", False),
    "unprocessable": ("invalid_body", False),
    "method_not_allowed": ("method_not_allowed", False),
    "not_found": ("not_found", False),
    "gone": ("not_found", False),
    "timed_out": ("timeout", True),
    "conflict": ("conflict", False),
    "payload_too_large": ("payload_too_large", False),
    "unsupported_media_type": ("unsupported_media_type", False),
    "rate_limited": ("rate_limited", True),
    "bug": ("internal_error", True),
    "unavailable": ("unavailable", True),
    "upstream": ("upstream_unavailable", True),
}
"""Kind of an error -> its reason, and whether another try makes sense."""

CHAT_REASONS: Final[Mapping[Kind, tuple[str, bool]]] = {
    **REASONS,
    "invalid": ("bad_request", False),
    "unprocessable": ("bad_request", False),
    "conflict": ("intern_not_ready", True),
    "unavailable": ("busy", True),
    "upstream": ("intern_unreachable", True),
}
"""The same for chats with interns."""
_CLOSED: Final = ("reason", "retryable")
"""All that the error of a chat may say beside its message."""


def with_reason(error: TollhouseError, path: str) -> TollhouseError:
    """Return an error that says its reason, where the route is one whose errors do.

    Args:
        error: What went wrong.
        path: The route's, below the version segment.
    """
    if policy.is_intern_chat(path):
        return _of_chat(error)
    if policy.below(path, policy.WITH_REASON):
        error.metadata = _reason(REASONS, error) | error.metadata
    return error


def retry_hint(path: str, wait: float) -> int | None:
    """Return what `Retry-After` says of a wait in seconds; clients of chats with interns want one.

    Args:
        path: The route's, below the version segment.
        wait: Until there is room for another request.
    """
    return retry_seconds(wait) if policy.is_intern_chat(path) else None


def _of_chat(error: TollhouseError) -> TollhouseError:
    if isinstance(error, NotOffered):
        return error
    about = _reason(CHAT_REASONS, error) | error.metadata
    error.metadata = {name: about[name] for name in _CLOSED if name in about}
    if error.kind == "unavailable" and error.retry_after is None:
        error.retry_after = RETRY_SECONDS
    return error


def _reason(reasons: Mapping[Kind, tuple[str, bool]], error: TollhouseError) -> dict[str, Any]:
    known = reasons.get(error.kind)
    return {} if known is None else dict(zip(_CLOSED, known, strict=True))
