"""OpenAI's error responses, and the header lines of all its responses.

Source: OpenAI API reference, and the guide "Error codes".
"""

from typing import Final

import msgspec

from tests.support.providers.framing import Framing

CREATED: Final = 1_767_225_600
"""2026-01-01: responses do not depend on the clock."""
FRAMING: Final = Framing("x-request-id: req_tollhouse\r\nopenai-version: 2020-10-01\r\n")
_ERRORS: Final[dict[int, tuple[str, str | None, str]]] = {
    400: ("invalid_request_error", None, "Invalid request."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Not supported."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}


def error_body(
    status: int, message: str | None = None, param: str | None = None, code: str | None = None
) -> bytes:
    """Return an error object; type, code and usual message are OpenAI's for the status."""
    nearest = status if status in _ERRORS else status // 100 * 100
    kind, usual_code, usual = _ERRORS.get(nearest, _ERRORS[500])
    fields = {"message": message or usual, "type": kind, "param": param, "code": code or usual_code}
    return msgspec.json.encode({"error": fields})


def error(
    status: int,
    message: str | None = None,
    *,
    param: str | None = None,
    code: str | None = None,
    extra: str = "",
) -> bytes:
    return FRAMING.whole(status, error_body(status, message, param, code), extra=extra)
