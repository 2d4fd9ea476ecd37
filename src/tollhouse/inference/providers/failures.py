"""From a provider's status and words to our errors: the rule that every HTTP provider shares.

A provider that does not accept the gateway's own credentials (401, 402, 403) or does not know the
model (404) failed us, not the caller: the caller can change nothing about it.
"""

from __future__ import annotations

from typing import Final

from tollhouse.inference.providers.refusals import MODERATION_CODES, classify, is_refusal
from tollhouse.kernel.envelope import STATUS
from tollhouse.kernel.errors import (
    ProviderFailure,
    ProviderModerated,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
)

_BY_STATUS: Final[dict[int, type[ProviderFailure]]] = {
    400: ProviderRefused,
    408: ProviderTimeout,
    413: ProviderRefused,
    422: ProviderRefused,
    429: ProviderRateLimited,
    503: ProviderOverloaded,
    504: ProviderTimeout,
    529: ProviderOverloaded,
}
_TEXTS: Final[dict[type[ProviderFailure], str]] = {
    ProviderRefused: "{name} refused the request",
    ProviderRateLimited: "{name} is rate limiting requests",
    ProviderOverloaded: "{name} is overloaded",
    ProviderTimeout: "{name} did not answer in time",
    ProviderUnavailable: "{name} failed",
}
_OPERATORS: Final[dict[int, str]] = {
    401: "{name} refused this gateway's key (401): check {settings}.api_key",
    402: "{name} wants to be paid (402): check the account there of {settings}",
    403: "{name} does not allow this gateway's key this request (403): check {settings}.api_key",
    404: "{name} does not know what it was asked for (404): check {settings}.base_url, and the "
    "model's name in its endpoint",
}
"""What only the operator can mend, and where."""
_LONGEST_MESSAGE = 500


_BY_WORD: Final[dict[str, int]] = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "request_too_large": 413,
    "timeout_error": 504,
}


def status_of_error_code(code: str | int | None) -> int | None:
    """Return the status that a provider's word for an error stands for, where there is no other.

    Source: https://docs.anthropic.com/en/api/errors and
    https://platform.openai.com/docs/api-reference/responses-streaming/response/failed
    """
    if isinstance(code, int):
        return code
    return _BY_WORD.get(code or "") or (STATUS["invalid"] if is_refusal(code) else None)


def failure(  # noqa: PLR0913 - what a provider may say of it
    name: str,
    status: int,
    *,
    code: str | int | None = None,
    message: str | None = None,
    retry_after: int | None = None,
    slug: str | None = None,
) -> ProviderFailure:
    """Return our error for a provider's error status.

    Args:
        name: The provider's name.
        status: Its HTTP status, or the number that it gave in mid-stream.
        code: Its own code, where it gave one.
        message: Its own text. Only a refusal of the request shows it: there it tells the caller
            what to change, elsewhere it may tell strangers about the operator's account.
        retry_after: Its hint, in whole seconds.
        slug: Its name in the settings, where that is not its name.
    """
    error = _failure(name, status, code, message, slug or name)
    error.provider_status = status
    if not isinstance(error, (ProviderRefused, ProviderModerated)):
        error.retry_after = retry_after
    return error


def _failure(
    name: str, status: int, code: str | int | None, message: str | None, slug: str
) -> ProviderFailure:
    if isinstance(code, str) and code.lower() in MODERATION_CODES:
        text = f"{name} stopped the request: its moderation flagged it."
        return ProviderModerated(text, provider_name=name, provider_code=code, reasons=[code])
    shown = status if code is None else code
    kind = _BY_STATUS.get(status, ProviderUnavailable)
    text = _OPERATORS.get(status, _TEXTS[kind]).format(name=name, settings=f"providers[{slug}]")
    if kind is not ProviderRefused:
        return kind(f"{text}.", provider_name=name, provider_code=shown)
    if message:
        text = f"{text}: {message[:_LONGEST_MESSAGE]}"
    return ProviderRefused(
        text if text.endswith(".") else f"{text}.",
        provider_name=name,
        provider_code=shown,
        error_type=classify(status, code, message),
    )
