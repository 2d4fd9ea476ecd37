"""Errors of the messages format: the gateway's own, before and in a stream, and a provider's.

    {"type": "error", "error": {"type", "message", "error_type"}, "request_id", "metadata"?}

Source: https://docs.anthropic.com/en/api/errors and the public gateway's error reference, for
`error_type` and its values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import ErrorEvent
from tollhouse.inference.formats.messages.wire import render_event
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.envelope import MASKED, error_object, status_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.kernel.errors import TollhouseError

_TYPES: Final[Mapping[str, str]] = {
    "authentication": "authentication_error",
    "payment_required": "billing_error",
    "permission_denied": "permission_error",
    "not_found": "not_found_error",
    "image_not_found": "not_found_error",
    "rate_limit_exceeded": "rate_limit_error",
    "provider_overloaded": "overloaded_error",
    "provider_unavailable": "api_error",
    "server": "api_error",
    "unmapped": "api_error",
    "timeout": "timeout_error",
}
"""The format's `type` for each `error_type` that the request is not to blame for."""
_LONGEST_CODE: Final = 100
_OUR_FAULT: Final = 500


class _ProviderError(msgspec.Struct):
    error: Raw = NULL
    type: str | None = None
    message: str | None = None


_error = msgspec.json.Decoder(_ProviderError | str)


def envelope(error: TollhouseError, request_id: str | None) -> dict[str, object]:
    """Return the body of an error response.

    Args:
        error: What went wrong; a bug's message is masked.
        request_id: The generation's id; None before there is one.
    """
    shown = error_object(error)
    body: dict[str, object] = {
        "type": "error",
        "error": {
            "type": _type_of(error),
            "message": shown["message"],
            "error_type": error.code,
        },
        "request_id": request_id,
    }
    facts = {name: value for name, value in error.metadata.items() if name != "error_type"}
    if facts and shown["message"] != MASKED:
        body["metadata"] = facts
    return body


def error_event(error: TollhouseError, request_id: str | None) -> bytes:
    """Return the error event that ends a stream."""
    return render_event("error", envelope(error, request_id))


def parse_error(data: Raw | bytes) -> ErrorEvent:
    """Parse a provider's error: the complete body or its `error` object alone.

    The code is the value of `type`, such as `overloaded_error`.
    """
    try:
        error = _error.decode(data)
        if not isinstance(error, str) and error.error != NULL:
            error = _error.decode(error.error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorEvent(None, None)
    if isinstance(error, str):
        return ErrorEvent(None, error)
    return ErrorEvent(error.type[:_LONGEST_CODE] if error.type else None, error.message)


def _type_of(error: TollhouseError) -> str:
    fallback = "api_error" if status_of(error) >= _OUR_FAULT else "invalid_request_error"
    return _TYPES.get(error.code, fallback)
