"""What the errors of operations on interns and secrets say beside their message.

    {"error": {"code": 404, "message": "...",
               "metadata": {"reason": "not_found", "retryable": false}}}

An error that knows better has its own reason already. Chats with interns have other words for
some of it, and say nothing of what lies outside of the programme.

Source: the public gateway's errors of the intern life cycle and of the chat with interns;
401 and 403 have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.api import policy
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
_RETRY_SECONDS: Final = 5


def with_reason(error: TollhouseError, path: str) -> TollhouseError:
    """Return an error that says its reason, where the route is one whose errors do.

    Args:
        error: What went wrong.
        path: The route's, below the version segment.
    """
    if not policy.below(path, policy.WITH_REASON):
        return error
    is_chat = policy.is_intern_chat(path)
    if is_chat and isinstance(error, NotOffered):
        return error
    known = (CHAT_REASONS if is_chat else REASONS).get(error.kind)
    if known is not None:
        reason, retryable = known
        error.metadata = {"reason": reason, "retryable": retryable, **error.metadata}
    if is_chat:
        error.metadata = {name: error.metadata[name] for name in _CLOSED if name in error.metadata}
    if is_chat and error.kind == "unavailable" and error.retry_after is None:
        error.retry_after = _RETRY_SECONDS
    return error
