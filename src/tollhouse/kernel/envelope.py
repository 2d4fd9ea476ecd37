"""How an error looks on the wire where a format does not say otherwise.

The one place that turns an error's `kind` into an HTTP status, and the one integer envelope
`{"error": {"code", "message", "metadata"?}}` that every JSON answer and every chat stream uses.

Source: the public gateway's error reference; its clients parse `code` as an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, Bug

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.kernel.errors import Kind, TollhouseError

STATUS: Final[Mapping[Kind, int]] = {
    "invalid": 400,
    "unauthenticated": 401,
    "payment_required": 402,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "timed_out": 408,
    "conflict": 409,
    "gone": 410,
    "payload_too_large": 413,
    "unsupported_media_type": 415,
    "unprocessable": 422,
    "rate_limited": 429,
    "bug": 500,
    "upstream": 502,
    "unavailable": 503,
    "upstream_overloaded": 503,
    "upstream_timeout": 504,
}
MASKED = "Internal server error."


def status_of(error: TollhouseError) -> int:
    """Return the HTTP status of an error."""
    return STATUS[error.kind]


def error_object(error: TollhouseError) -> dict[str, object]:
    """Return the `error` object; a bug's text stays inside."""
    status = status_of(error)
    if isinstance(error, Bug) or status == STATUS["bug"]:
        return {
            "code": status,
            "message": MASKED,
            "metadata": {"error_type": error.code, **error.metadata},
        }
    shown: dict[str, object] = {"code": status, "message": error.message}
    if error.code == CONTEXT_LENGTH_EXCEEDED:
        # OpenAI's `code` is this word. Here it is a number, so the word stands where OpenAI's
        # clients look next.
        shown["type"] = error.code
    if error.metadata:
        shown["metadata"] = error.metadata
    return shown


def envelope(error: TollhouseError) -> dict[str, object]:
    """Return the whole body of an error."""
    return {"error": error_object(error)}
