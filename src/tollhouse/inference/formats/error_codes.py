"""The codes and words by which servers say what went wrong, and the statuses they stand for. Pure.

Source: https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors,
https://cloud.google.com/apis/design/errors,
https://docs.aws.amazon.com/awssupport/latest/APIReference/CommonErrors.html and
https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html.
"""

from __future__ import annotations

import re
from typing import Final

from tollhouse.kernel.errors import STATUS

TYPE_BY_CODE: Final[dict[str, str]] = {
    "context_length_exceeded": "context_length_exceeded",
    "context_window_exceeded": "context_length_exceeded",
    "exceed_context_size_error": "context_length_exceeded",
    "model_context_window_exceeded": "context_length_exceeded",
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
CODES_BY_STATUS: Final[dict[int, str]] = {
    # https://docs.anthropic.com/en/api/errors and https://platform.openai.com/docs/guides/error-codes
    400: "invalid_request_error invalid_prompt bad_request badrequesterror"
    # https://cloud.google.com/apis/design/errors
    " invalid_argument failed_precondition out_of_range"
    # https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html
    " validationexception validationerror serializationexception",
    401: "authentication_error invalid_api_key unauthenticated unauthorized invalidclienttokenid"
    " unrecognizedclientexception expiredtokenexception invalidsignatureexception"
    " incompletesignature missingauthenticationtoken missingauthenticationtokenexception",
    402: "billing_error insufficient_balance payment_required",
    403: "permission_error permission_denied forbidden accessdeniedexception",
    404: "not_found_error model_not_found not_found notfounderror resourcenotfoundexception"
    " unknownoperationexception",
    408: "modeltimeoutexception request_timeout",
    413: "request_too_large",
    429: "rate_limit rate_limit_error rate_limit_exceeded rate_limited too_many_requests"
    " insufficient_quota quota_exceeded resource_exhausted throttlingexception throttling throttled"
    " throttledexception toomanyrequestsexception toomanyrequests limitexceededexception"
    " servicequotaexceededexception provisionedthroughputexceededexception slow_down",
    500: "api_error server_error internal_error internal_server_error internalservererror internal"
    " internalserverexception internalfailure modelerrorexception modelstreamerrorexception",
    503: "server_is_overloaded engine_overloaded overloaded service_unavailable unavailable"
    " serviceunavailableexception modelnotreadyexception"
    " serviceunavailable",
    504: "timeout_error timeout deadline_exceeded gateway_timeout",
    529: "overloaded_error",
}
"""The codes in a body or a stream whose status says nothing, in small letters."""
_STATUS_BY_CODE: Final = {
    code: status for status, codes in CODES_BY_STATUS.items() for code in codes.split()
}
_STATUSES: Final = range(400, 600)
STATUS_BY_WORDS: Final[dict[int, str]] = {
    429: r"rate.?limit|too many requests|request limit|quota|throttl",
    503: r"overload|too busy|is busy|(over|no|at) capacity|no healthy upstream|temporarily unavail",
    504: r"timed? ?out|deadline exceeded",
}
"""What an error says whose status and code say nothing; the first that fits holds."""


def status_of_error(code: str | int | None, message: str | None = None) -> int | None:
    """Return the status that a provider's code or else its words stand for; None if unknown."""
    if (status := status_of_code(code)) is not None:
        return status
    said = f"{code} {message or ''}".lower()
    found = (each for each, words in STATUS_BY_WORDS.items() if re.search(words, said))
    return next(found, None)


def status_of_code(code: str | int | None) -> int | None:
    """Return the status that a provider's code stands for; None if it is not known."""
    if isinstance(code, str) and code.isdecimal() and len(code) == len("400"):
        code = int(code)
    if not isinstance(code, str):
        return code if code in _STATUSES else None
    # AWS's names begin with a small letter in a stream, with a namespace in a body, and may end
    # with an address.
    known = code.lower().rpartition("#")[2].partition(":")[0]
    is_refusal = known in TYPE_BY_CODE or known in MODERATION_CODES
    return _STATUS_BY_CODE.get(known, STATUS["invalid"] if is_refusal else None)
