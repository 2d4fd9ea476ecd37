"""Rendering the gateway's errors, and parsing a provider's."""

from datetime import UTC, datetime

import pytest

from tollhouse.inference.formats.messages.wire import envelope, parse_error
from tollhouse.kernel import errors
from tollhouse.kernel.errors import RateWindow, TollhouseError

WINDOW = RateWindow(20, 0, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.Invalid("a"), "invalid_request_error"),
        (errors.PayloadTooLarge("a"), "invalid_request_error"),
        (errors.Unprocessable("a"), "invalid_request_error"),
        (errors.Conflict("a"), "invalid_request_error"),
        (errors.Unauthenticated("a"), "authentication_error"),
        (errors.PaymentRequired("a"), "billing_error"),
        (errors.Forbidden("a"), "permission_error"),
        (errors.NotFound("a"), "not_found_error"),
        (errors.RateLimited("a", window=WINDOW), "rate_limit_error"),
        (errors.TimedOut("a"), "timeout_error"),
        (errors.Unavailable("a"), "overloaded_error"),
        (errors.ProviderOverloaded("a", provider_name="A"), "overloaded_error"),
        (errors.ProviderUnavailable("a", provider_name="A"), "api_error"),
        (errors.ProviderTimeout("a", provider_name="A"), "timeout_error"),
        (errors.Bug("a"), "api_error"),
    ],
)
def test_each_error_has_the_formats_type(error: TollhouseError, kind: str) -> None:
    shown = envelope(error, None)["error"]
    assert isinstance(shown, dict)
    assert shown["type"] == kind
    assert shown["error_type"] == error.code


def test_an_envelope_has_the_message_the_id_and_the_metadata() -> None:
    error = errors.ProviderRefused("Acme refused it.", provider_name="Acme", provider_code=400)
    assert envelope(error, "gen-1") == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Acme refused it.",
            "error_type": "invalid_request",
        },
        "request_id": "gen-1",
        "metadata": {"provider_name": "Acme", "provider_code": 400},
    }


def test_the_message_of_a_bug_is_masked() -> None:
    shown = envelope(errors.Bug("secret", metadata={"a": "secret"}), None)
    assert "secret" not in str(shown)
    assert shown["request_id"] is None


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b'{"type":"overloaded_error","message":"Busy"}', "overloaded_error", "Busy"),
        (b'{"error":{"type":"a","message":"b"},"request_id":"r"}', "a", "b"),
        (b'{"type":"a","message":"b","code":{"of":"theirs"}}', "a", "b"),
        (b'{"error":{"type":"' + b"x" * 999 + b'"}}', "x" * 100, None),
        (b'"Busy"', None, "Busy"),
        (b"{}", None, None),
        (b"<html>", None, None),
        (b'{"error":7}', None, None),
        (b"[" * 100_000, None, None),
        (b"\xff", None, None),
    ],
)
def test_a_providers_error_is_parsed(data: bytes, code: str | None, message: str | None) -> None:
    said = parse_error(data)
    assert (said.code, said.message) == (code, message)
