"""Errors in the responses format: ours, before and in a stream, and a provider's.

Before the stream an error is the common envelope; after the 200 went out the response itself has
failed, and the stream ends with that.

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
"""Codes of OpenAI's for a refusal, which a client gets as the provider gave them."""
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
    """Return the whole body of an error before the stream, in the envelope that all JSON has.

    OpenAI's own code is a text; the public gateway's clients take an integer alone.
    """
    del request_id
    return common.envelope(error)


def failed_response(
    response: Mapping[str, object], error_type: str, message: object, code: str | None = None
) -> dict[str, object]:
    """Return a response that failed.

    Args:
        response: The response as far as it came.
        error_type: The wire's name of the error.
        message: What the client may read.
        code: The format's; unless given, the one that the error has in this format.
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
    """Return the response of a stream that an error ended; a bug's text stays inside."""
    given = error.provider_code if isinstance(error, ProviderRefused) else None
    code = given if isinstance(given, str) and given in _FORWARDED_CODES else None
    return failed_response(response, error.code, error_object(error)["message"], code)


def parse_failure_event(data: bytes) -> ErrorEvent:
    """Return what an event that ends a stream with an error says: in itself, or its response."""
    try:
        failure = _failure.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return parse_error(data)
    return parse_error(data if failure.response is None else failure.response.error)


def parse_error(data: msgspec.Raw | bytes) -> ErrorEvent:
    """Return what a provider's error says: a response's `error`, or an `error` event.

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
