"""Which of the wire's error types a provider's refusal of a request is. Pure.

Providers say it in a code of their own, or only in words.

Source: the public gateway's error reference for the types; for the codes
https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors and
https://learn.microsoft.com/azure/ai-services/openai/concepts/content-filter.
"""

from __future__ import annotations

import re
from typing import Final, Literal

RefusalType = Literal[
    "context_length_exceeded",
    "max_tokens_exceeded",
    "token_limit_exceeded",
    "string_too_long",
    "invalid_request",
    "invalid_prompt",
    "payload_too_large",
    "unprocessable",
    "image_not_found",
    "content_policy_violation",
    "refusal",
    "invalid_image",
    "image_too_large",
    "image_too_small",
    "unsupported_image_format",
    "image_download_failed",
]

_BY_CODE: Final[dict[str, RefusalType]] = {
    "context_length_exceeded": "context_length_exceeded",
    "context_window_exceeded": "context_length_exceeded",
    "max_tokens_exceeded": "max_tokens_exceeded",
    "token_limit_exceeded": "token_limit_exceeded",
    "string_above_max_length": "string_too_long",
    "string_too_long": "string_too_long",
    "invalid_prompt": "invalid_prompt",
    "request_too_large": "payload_too_large",
    "content_policy_violation": "content_policy_violation",
    "image_content_policy_violation": "content_policy_violation",
    "refusal": "refusal",
    "invalid_image": "invalid_image",
    "invalid_base64_image": "invalid_image",
    "image_parse_error": "invalid_image",
    "empty_image_file": "invalid_image",
    "invalid_image_format": "unsupported_image_format",
    "invalid_image_mode": "unsupported_image_format",
    "unsupported_image_media_type": "unsupported_image_format",
    "image_too_large": "image_too_large",
    "image_file_too_large": "image_too_large",
    "image_too_small": "image_too_small",
    "image_file_not_found": "image_not_found",
    "image_not_found": "image_not_found",
    "invalid_image_url": "image_download_failed",
    "failed_to_download_image": "image_download_failed",
    "image_download_failed": "image_download_failed",
}
MODERATION_CODES: Final = frozenset(
    {"moderation_blocked", "content_filter", "responsibleaipolicyviolation", "content_moderation"}
)
"""A filter before the model stopped the request."""
_BY_STATUS: Final[dict[int, RefusalType]] = {413: "payload_too_large", 422: "unprocessable"}
_BY_WORDS: Final[tuple[tuple[re.Pattern[str], RefusalType], ...]] = (
    (
        re.compile(
            r"context (length|window|limit)|prompt is too long|too many tokens"
            r"|input token count.{0,40}exceeds",
            re.IGNORECASE,
        ),
        "context_length_exceeded",
    ),
    (
        re.compile(r"max_(completion_|output_)?tokens.{0,80}(large|exceed|maximum)", re.IGNORECASE),
        "max_tokens_exceeded",
    ),
    (re.compile(r"string too long", re.IGNORECASE), "string_too_long"),
    (
        re.compile(r"(download|fetch).{0,40}image|image.{0,40}(download|fetch)", re.IGNORECASE),
        "image_download_failed",
    ),
    (re.compile(r"image.{0,60}(exceeds|too large)", re.IGNORECASE), "image_too_large"),
    (re.compile(r"could not process image|invalid image", re.IGNORECASE), "invalid_image"),
)


def is_refusal(code: str | None) -> bool:
    """Tell whether a provider's code says that the request is wrong, whatever its status."""
    return code is not None and code.lower() in (_BY_CODE.keys() | MODERATION_CODES)


def classify(status: int, code: str | int | None, message: str | None) -> RefusalType:
    """Return the type of a refusal.

    Args:
        status: The provider's HTTP status.
        code: Its own code, where it gave one.
        message: Its own text, where it gave one.
    """
    if isinstance(code, str) and (known := _BY_CODE.get(code.lower())):
        return known
    if known := _BY_STATUS.get(status):
        return known
    for words, meant in _BY_WORDS:
        if message is not None and words.search(message):
            return meant
    return "invalid_request"
