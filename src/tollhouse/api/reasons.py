"""What the errors of operations on interns and secrets say beside their message.

    {"error": {"code": 404, "message": "...",
               "metadata": {"reason": "not_found", "retryable": false}}}

An error that knows better has its own reason already.

Source: the public gateway's errors of the intern life cycle; 401 and 403 have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.api import policy

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


def with_reason(error: TollhouseError, path: str) -> TollhouseError:
    """Return an error that says its reason, where the route is one whose errors do.

    Args:
        error: What went wrong.
        path: The route's, below the version segment.
    """
    if policy.below(path, policy.WITH_REASON) and error.kind in REASONS:
        reason, retryable = REASONS[error.kind]
        error.metadata = {"reason": reason, "retryable": retryable, **error.metadata}
    return error
