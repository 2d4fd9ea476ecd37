"""Errors of the responses format: the gateway's own, before and in a stream, and a provider's.

Before the first byte an error is the common envelope; after status 200 was sent the stream ends
with a failed response.

Source: https://platform.openai.com/docs/api-reference/responses-streaming/response/failed, and the
public gateway's error reference for `error_type` and its table of codes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.adapter import ErrorEvent
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel import envelope as common
from tollhouse.kernel.envelope import error_object
from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, ProviderRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.kernel.errors import TollhouseError

_CODES: Final[Mapping[str, str]] = {
    CONTEXT_LENGTH_EXCEEDED: CONTEXT_LENGTH_EXCEEDED,
    "invalid_request": "invalid_prompt",
    "rate_limit_exceeded": "rate_limit_exceeded",
    "content_policy_violation": "image_content_policy_violation",
}
_DEFAULT_CODE: Final = "server_error"
_FORWARDED_CODES: Final = frozenset(
    {
        "invalid_prompt",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "invalid_image_mode",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "image_file_too_large",
        "image_file_not_found",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
    }
)
"""OpenAI's codes of rejected requests, which are forwarded to the client."""
_LONGEST_CODE: Final = 100


class _ProviderError(msgspec.Struct):
    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    error: msgspec.Raw = NULL


class _FailedResponse(msgspec.Struct):
    error: msgspec.Raw = NULL


class _Failure(msgspec.Struct):
    response: _FailedResponse | None = None


_failure = msgspec.json.Decoder(_Failure)
_error = msgspec.json.Decoder(_ProviderError | str)


def envelope(error: TollhouseError, request_id: str | None = None) -> dict[str, object]:
    """Return the body of an error response: the common envelope.

    OpenAI's own code is a string; the public gateway's clients accept only an integer.
    """
    del request_id
    return common.envelope(error)


def failed_response(
    response: Mapping[str, object], error_type: str, message: object, code: str | None = None
) -> dict[str, object]:
    """Return a failed response object.

    Args:
        response: The response so far.
        error_type: The gateway's code of the error.
        message: The message for the client.
        code: The format's code; derived from `error_type` if None.
    """
    return {
        **response,
        "status": "failed",
        "error": {"code": code or _CODES.get(error_type, _DEFAULT_CODE), "message": message},
        "error_type": error_type,
    }


def interrupted_response(
    response: Mapping[str, object], error: TollhouseError
) -> dict[str, object]:
    """Return the response of a stream that an error ended; a bug's message is masked."""
    given = error.provider_code if isinstance(error, ProviderRefused) else None
    code = given if isinstance(given, str) and given in _FORWARDED_CODES else None
    return failed_response(response, error.code, error_object(error)["message"], code)


def parse_failure_event(data: bytes) -> ErrorEvent:
    """Parse the event that ends a failed stream: its own error, or its response's."""
    try:
        failure = _failure.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return parse_error(data)
    return parse_error(data if failure.response is None else failure.response.error)


def parse_error(data: msgspec.Raw | bytes) -> ErrorEvent:
    """Parse a provider's error: a response's `error`, or an `error` event.

    The event is flat (`{"type": "error", "code", "message"}`); some servers nest the object.
    """
    try:
        error = _error.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ErrorEvent(None, None)
    if isinstance(error, str):
        return ErrorEvent(None, error)
    if error.error != NULL:
        return parse_error(error.error)
    kind = None if error.type == "error" else error.type
    code = kind if error.code is None else error.code
    return ErrorEvent(code[:_LONGEST_CODE] if isinstance(code, str) else code, error.message)
