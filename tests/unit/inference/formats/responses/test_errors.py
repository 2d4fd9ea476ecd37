from typing import Any

import pytest

from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.formats.responses.wire import (
    interrupted_response,
    parse_error,
    parse_failure_event,
)
from tollhouse.kernel.errors import (
    Bug,
    Invalid,
    ProviderRateLimited,
    ProviderRefused,
    TollhouseError,
)


def test_before_the_stream_an_error_code_is_an_integer() -> None:
    assert FORMATS["/responses"].render_error(Invalid("input: no."), "gen-1") == {
        "error": {"code": 400, "message": "input: no."}
    }


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (Invalid("no"), "invalid_prompt", "no"),
        (ProviderRateLimited("slow", provider_name="A"), "rate_limit_exceeded", "slow"),
        (Bug("secret"), "server_error", "Internal server error."),
    ],
)
def test_in_a_stream_an_error_has_a_code_of_the_format(
    error: TollhouseError, code: str, message: str
) -> None:
    shown = interrupted_response({"id": "gen-1"}, error)
    assert shown == {
        "id": "gen-1",
        "status": "failed",
        "error": {"code": code, "message": message},
        "error_type": error.code,
    }


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"code":"a","message":"b"}', ("a", "b")),
        (b'{"type":"error","code":null,"message":"b"}', (None, "b")),
        (b'{"type":"server_error","message":"b"}', ("server_error", "b")),
        (b'{"type":"server_error","message":"b","code":1.5}', ("server_error", "b")),
        (b'{"type":"error","error":{"code":5,"message":"b"}}', (5, "b")),
        (b'"b"', (None, "b")),
        (b"{}", (None, None)),
        (b"[1]", (None, None)),
        (b"[" * 100_000, (None, None)),
        (b'{"code":"' + b"x" * 500 + b'"}', ("x" * 100, None)),
    ],
)
def test_every_form_of_a_providers_error_is_parsed(data: bytes, said: tuple[Any, Any]) -> None:
    error = parse_error(data)
    assert (error.code, error.message) == said


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"type":"response.failed","response":{"error":{"code":"a"}}}', "a"),
        (b'{"type":"response.failed","response":{"error":null}}', None),
        (b'{"type":"response.failed","response":5}', "response.failed"),
        (b'{"type":"error","code":"a","response":null}', "a"),
    ],
)
def test_a_failure_event_has_its_error_inline_or_in_its_response(
    data: bytes, code: str | None
) -> None:
    assert parse_failure_event(data).code == code


@pytest.mark.parametrize(
    ("given", "error_type", "shown"),
    [
        ("context_length_exceeded", "context_length_exceeded", "context_length_exceeded"),
        ("invalid_request_error", "context_length_exceeded", "context_length_exceeded"),
        ("invalid_prompt", "invalid_prompt", "invalid_prompt"),
        ("image_too_large", "image_too_large", "image_too_large"),
        ("no_word_of_openais", "invalid_request", "invalid_prompt"),
    ],
)
def test_a_rejected_request_keeps_openais_code(given: str, error_type: str, shown: str) -> None:
    refused = ProviderRefused(
        "A refused it.", provider_name="A", provider_code=given, error_type=error_type
    )
    assert interrupted_response({}, refused)["error"] == {"code": shown, "message": "A refused it."}
