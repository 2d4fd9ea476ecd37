from typing import Any

import pytest

from tests.support.seams.inference import failure, status_of_error_code
from tollhouse.kernel.errors import error_body, status_of

SECRET = "Your organization org-123 has run out of money"


@pytest.mark.parametrize(
    ("theirs", "ours", "text"),
    [
        (400, 400, "Acme refused the request."),
        (413, 413, "Acme refused the request."),
        (422, 422, "Acme refused the request."),
        (401, 502, "Acme refused this gateway's key (401): check providers[Acme].api_key."),
        (402, 502, "Acme wants to be paid (402): check the account there of providers[Acme]."),
        (
            403,
            502,
            (
                "Acme does not allow this gateway's key this request (403): "
                "check providers[Acme].api_key."
            ),
        ),
        (
            404,
            502,
            (
                "Acme does not know what it was asked for (404): check providers[Acme].base_url, "
                "and the model's name in its endpoint."
            ),
        ),
        (408, 504, "Acme did not answer in time."),
        (418, 502, "Acme failed."),
        (429, 429, "Acme is rate limiting requests."),
        (500, 502, "Acme failed."),
        (502, 502, "Acme failed."),
        (503, 503, "Acme is overloaded."),
        (504, 504, "Acme did not answer in time."),
        (529, 503, "Acme is overloaded."),
        (
            302,
            502,
            (
                "Acme redirects to another address (302), which is not followed: "
                "check providers[Acme].base_url."
            ),
        ),
        (0, 502, "Acme failed."),
        (10**30, 502, "Acme failed."),
    ],
)
def test_a_providers_status_becomes_ours(theirs: int, ours: int, text: str) -> None:
    error = failure("Acme", theirs)
    assert (status_of(error), error.message) == (ours, text)
    assert error.metadata["provider_name"] == "Acme"
    assert error.provider_code == theirs
    assert not error.ambiguous


def test_a_refused_key_is_named_as_the_settings_name_it() -> None:
    error = failure("Acme Inc.", 401, slug="acme")
    assert error.message == (
        "Acme Inc. refused this gateway's key (401): check providers[acme].api_key."
    )


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refusal_shows_the_providers_text(status: int) -> None:
    assert (
        failure("Acme", status, message="too long").message == "Acme refused the request: too long."
    )


@pytest.mark.parametrize("status", [401, 402, 403, 404, 429, 500, 503, 504])
def test_any_other_failure_shows_nothing_of_the_operators_account(status: int) -> None:
    assert SECRET not in str(error_body(failure("Acme", status, message=SECRET)))


def test_a_text_keeps_its_full_stop() -> None:
    assert failure("Acme", 400, message="No.").message == "Acme refused the request: No."


def test_a_long_text_is_cut() -> None:
    assert len(failure("Acme", 400, message="x" * 10_000).message) < 600


def test_the_providers_own_code_goes_before_its_status() -> None:
    assert failure("Acme", 400, code="bad_thing").provider_code == "bad_thing"


@pytest.mark.parametrize(
    ("status", "code", "message", "error_type", "ours"),
    [
        (400, "context_length_exceeded", None, "context_length_exceeded", 400),
        (400, "invalid_request_error", "prompt is too long: 9 > 8", "context_length_exceeded", 400),
        (400, None, "This model's maximum context length is 8", "context_length_exceeded", 400),
        *(
            (400, None, words, "context_length_exceeded", 400)
            for words in (
                "The input token count (9) exceeds it",
                "Your input exceeds the context window of this model.",
                "the request exceeds the available context size, try increasing it",
                "The input (9 tokens) is longer than the model's context length (8 tokens).",
                "The decoder prompt (length 9) is longer than the maximum model length of 8.",
                "the input length exceeds the context length",
                "Input is too long for requested model.",
                "input length and `max_tokens` exceed context limit: 9 + 8 > 16",
                "This model's maximum prompt length is 8 but the request contains 9 tokens.",
                "Prompt contains 9 tokens, too large for model with 8 maximum context length",
                "too many tokens: total number of tokens in the prompt cannot exceed 8",
                "Please reduce the length of the messages or completion.",
                "`inputs` must have less than 8 tokens. Given: 9",
                "`inputs` tokens + `max_new_tokens` must be <= 8.",
            )
        ),
        (400, None, "max_tokens: 9 > 8, which is the maximum", "max_tokens_exceeded", 400),
        (400, "string_above_max_length", None, "string_too_long", 400),
        (400, "invalid_image_format", None, "unsupported_image_format", 400),
        (400, "invalid_base64_image", None, "invalid_image", 400),
        (400, "invalid_image_url", None, "image_download_failed", 400),
        (400, None, "Unable to download the image", "image_download_failed", 400),
        (400, None, "image exceeds 5 MB maximum", "image_too_large", 400),
        (400, "image_file_not_found", None, "image_not_found", 404),
        (400, "content_policy_violation", None, "content_policy_violation", 400),
        (400, "invalid_prompt", None, "invalid_prompt", 400),
        (413, "request_too_large", "x", "payload_too_large", 413),
        (422, None, None, "unprocessable", 422),
        (400, "whatever", "who knows", "invalid_request", 400),
    ],
)
def test_a_refusal_has_the_wires_error_type(
    status: int, code: str | None, message: str | None, error_type: str, ours: int
) -> None:
    error = failure("Acme", status, code=code, message=message)
    assert error.metadata["error_type"] == error.code == error_type
    assert status_of(error) == ours


@pytest.mark.parametrize("code", ["moderation_blocked", "content_filter"])
def test_what_moderation_flags_is_forbidden_and_says_why(code: str) -> None:
    error = failure("Acme", 400, code=code, message="the prompt holds ...")
    assert status_of(error) == 403
    assert error.metadata["reasons"] == [code]
    assert error.metadata["provider_name"] == "Acme"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (429, 429),
        ("context_length_exceeded", 400),
        ("invalid_image_url", 400),
        ("content_filter", 400),
        ("overloaded_error", 529),
        ("request_too_large", 413),
        ("server_error", 500),
        ("server_is_overloaded", 503),
        ("RESOURCE_EXHAUSTED", 429),
        ("insufficient_quota", 429),
        ("com.amazon.coral.service#ThrottlingException", 429),
        ("throttlingException", 429),
        ("BadRequestError", 400),
        ("504", 504),
        (1302, None),
        ("1303", None),
        ("who knows", None),
        (None, None),
    ],
)
def test_a_word_in_mid_stream_stands_for_a_status(code: str | int | None, status: Any) -> None:
    assert status_of_error_code(code) == status


def test_a_full_context_has_openais_word_beside_the_number() -> None:
    error = failure("Acme", 400, code="context_length_exceeded", message="Too long.")
    shown = error_body(error)["error"]
    assert (shown["code"], shown["type"]) == (400, "context_length_exceeded")
    assert "type" not in error_body(failure("Acme", 400))["error"]
