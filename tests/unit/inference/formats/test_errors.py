"""Errors in each client's format, and what providers say in theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.seams.formats import CUT, IDENTITY, adapter, error_body, provider_error
from tests.support.stream_checks import chat, completions, messages, responses
from tollhouse.kernel import errors

if TYPE_CHECKING:
    from tollhouse.kernel.errors import TollhouseError

WINDOW = errors.RateWindow(20, 0, datetime(2026, 1, 1, tzinfo=UTC))
SAID = [{"role": "user", "content": "hello"}]
ASKED = {
    "chat": {"model": "a", "messages": SAID},
    "responses": {"model": "a", "input": SAID},
    "messages": {"model": "a", "messages": SAID},
    "completions": {"model": "a", "prompt": "hello"},
}
SHAPES: list[Any] = yaml.safe_load(Path(__file__).with_name("errors.yaml").read_bytes())
CHECKS = {"chat": chat, "responses": responses, "messages": messages, "completions": completions}


def failed(client: str, dialect: str, error: TollhouseError) -> dict[str, Any]:
    """Return the last event of a stream that failed before its first one."""
    stream = adapter(client, dialect, json.dumps(ASKED[client]).encode()).open_stream(IDENTITY)
    written = stream.fail(error)
    CHECKS[client].check_stream(written)
    events = [each.partition(b"data: ")[2] for each in written.split(b"\n\n") if b"{" in each]
    return json.loads(next(each for each in events if b'"error":{' in each))


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
def test_each_error_has_the_type_of_the_messages_format(error: TollhouseError, kind: str) -> None:
    shown = error_body("messages", error, None)["error"]
    assert (shown["type"], shown["error_type"]) == (kind, error.code)


def test_an_error_in_the_messages_format_has_the_message_the_id_and_the_metadata() -> None:
    error = errors.ProviderRefused("Acme refused it.", provider_name="Acme", provider_code=400)
    assert error_body("messages", error, "gen-1") == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "Acme refused it.",
            "error_type": "invalid_request",
        },
        "request_id": "gen-1",
        "metadata": {"provider_name": "Acme", "provider_code": 400},
    }


@pytest.mark.parametrize("client", ["chat", "responses", "completions"])
def test_before_a_stream_the_code_of_an_error_is_its_status(client: str) -> None:
    shown = {"error": {"code": 400, "message": "input: no."}}
    assert error_body(client, errors.Invalid("input: no."), "gen-1") == shown


@pytest.mark.parametrize(
    ("client", "shown"),
    [
        ("chat", {"code": 502, "metadata": {"provider_name": "Acme"}}),
        ("completions", {"code": 502, "metadata": {"provider_name": "Acme"}}),
        ("responses", {"code": "server_error"}),
        ("messages", {"type": "api_error"}),
    ],
)
def test_a_stream_that_failed_says_why(client: str, shown: dict[str, Any]) -> None:
    for dialect in dict.fromkeys([client, "chat", "messages"]):
        event = failed(client, dialect, CUT)
        error = event.get("response", event)["error"]
        assert error["message"] == "Acme closed the connection."
        kinds = (error, error.get("metadata", {}), event.get("response", {}))
        assert "provider_unavailable" in [each.get("error_type") for each in kinds]
        if client == "messages":
            assert event["request_id"] == "gen-1"
            assert event["metadata"] == {"provider_name": "Acme"}
        assert {name: error[name] for name in shown.keys() - {"metadata"}} == {
            name: value for name, value in shown.items() if name != "metadata"
        }
        assert error.get("metadata", {}).items() >= shown.get("metadata", {}).items()


def test_the_code_of_a_provider_is_a_text_in_a_chunk() -> None:
    busy = errors.ProviderOverloaded("no", provider_name="A", provider_code=529)
    assert failed("chat", "chat", busy)["error"]["metadata"]["provider_code"] == "529"


@pytest.mark.parametrize("client", ASKED)
def test_the_message_of_a_bug_is_shown_nowhere(client: str) -> None:
    bug = errors.Bug("the secret is 42", metadata={"a": "secret"} if client == "messages" else None)
    for dialect in dict.fromkeys([client, "chat", "messages"]):
        assert "secret" not in str(failed(client, dialect, bug))
    assert "secret" not in str(error_body(client, bug, None))


def refused(code: str, error_type: str) -> TollhouseError:
    return errors.ProviderRefused(
        "no", provider_name="A", provider_code=code, error_type=error_type
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Invalid("no"), "invalid_prompt"),
        (errors.ProviderRateLimited("no", provider_name="A"), "rate_limit_exceeded"),
        (refused("context_length_exceeded", "context_length_exceeded"), "context_length_exceeded"),
        (refused("invalid_request_error", "context_length_exceeded"), "context_length_exceeded"),
        (refused("invalid_prompt", "invalid_prompt"), "invalid_prompt"),
        (refused("image_too_large", "image_too_large"), "image_too_large"),
        (refused("no_word_of_openais", "invalid_request"), "invalid_prompt"),
    ],
)
@pytest.mark.parametrize("dialect", ["responses", "chat"])
def test_a_response_that_failed_has_a_code_of_its_format(
    dialect: str, error: TollhouseError, code: str
) -> None:
    shown = failed("responses", dialect, error)["response"]
    assert shown["error"] == {"code": code, "message": "no"}
    assert shown["error_type"] == error.code


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [*SHAPES, ({"error": {"type": "x" * 999}}, "x" * 100, None)],
)
def test_a_providers_error_is_read_in_every_shape(
    data: object, code: str | int | None, message: str | None
) -> None:
    said = provider_error(json.dumps(data).encode())
    assert (said.code, said.message) == (code, message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"upstream connect error\n or disconnect", "upstream connect error or disconnect"),
        (b"<html><head><TITLE>413 Too &amp; Large</TITLE></head></html>", "413 Too & Large"),
        (b"<html>", None),
        (b"", None),
        (b" ", None),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (b'{"error":"\xff"}', "\N{REPLACEMENT CHARACTER}"),
        (b"[" * 100_000, None),
        (b'{"error":', None),
    ],
)
def test_an_error_that_is_no_json_has_words_or_a_title(data: bytes, message: str | None) -> None:
    said = provider_error(data)
    assert (said.code, said.message) == (None, message)
