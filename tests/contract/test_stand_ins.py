"""The stand-ins of the providers are what the providers' own libraries expect, to the field.

Nothing of the gateway takes part: what its adapters are tested against is itself tested here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.client_process import run_client
from tests.support.upstream_process import start_upstream

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.support.upstream_process import UpstreamProcess

pytestmark = pytest.mark.contract

MESSAGES = [
    *("echo", "fixed", "cached", "refusal", "ping", "tools", "two-tools", "thinking", "redacted"),
    *("json", "stop-reason:pause_turn"),
]
CHATS = ["echo", "fixed", "cached", "refusal", "two-tools", "reasoning", "json", "large-2026"]
RESPONSES = [
    *("echo", "fixed", "cached", "refusal", "tools", "two-tools", "custom", "reasoning", "json"),
    "content-filter",
]
REASONING_EXTENSIONS = {
    "reasoning": {"reasoning_content"},
    "reasoning-details": {"reasoning", "reasoning_details"},
}


@pytest.fixture(scope="module")
def upstream() -> Generator[UpstreamProcess]:
    with start_upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def anthropic(upstream: UpstreamProcess) -> dict[str, Any]:
    return run_client("anthropic", "check_stand_in.py", env={"ORIGIN": upstream.origin})


@pytest.fixture(scope="module")
def openai(upstream: UpstreamProcess) -> dict[str, Any]:
    return run_client("openai", "check_stand_in.py", env={"ORIGIN": upstream.origin})


# ------------------------------------------------------------------------------------ anthropic


@pytest.mark.parametrize("kind", MESSAGES)
def test_every_field_of_a_message_is_published(anthropic: dict[str, Any], kind: str) -> None:
    assert anthropic["kinds"][kind]["unknown"] == []


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_says_the_same_whole_and_streamed(anthropic: dict[str, Any], kind: str) -> None:
    seen = anthropic["kinds"][kind]
    assert seen["whole"]["content"]
    assert seen["streamed"] == seen["whole"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("echo", "end_turn"),
        ("tools", "tool_use"),
        ("refusal", "refusal"),
        ("stop-reason:pause_turn", "pause_turn"),
    ],
)
def test_a_message_says_why_it_stopped(anthropic: dict[str, Any], kind: str, reason: str) -> None:
    assert anthropic["kinds"][kind]["whole"]["stop_reason"] == reason


def test_a_limit_and_a_stop_sequence_end_a_message(anthropic: dict[str, Any]) -> None:
    cut, stopped = anthropic["cut"], anthropic["stopped"]
    assert (cut["content"][0]["text"], cut["stop_reason"]) == ("one two", "max_tokens")
    assert (stopped["content"][0]["text"], stopped["stop_sequence"]) == ("one", " two")


def test_cached_tokens_come_apart_by_how_long_they_are_kept(anthropic: dict[str, Any]) -> None:
    usage = anthropic["kinds"]["cached"]["whole"]["usage"]
    kept = {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 100}
    assert usage["cache_creation"] == kept
    assert (usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]) == (500, 1920)


def test_calls_carry_arguments_made_from_their_schemas(anthropic: dict[str, Any]) -> None:
    first, second = anthropic["kinds"]["two-tools"]["whole"]["content"]
    assert (first["name"], first["input"]) == ("weather", {"city": "city", "days": 1})
    assert (second["name"], second["input"]) == ("time", {})


def test_the_results_of_tools_come_back(anthropic: dict[str, Any]) -> None:
    assert anthropic["results"] == "result 0 result 1"


def test_thoughts_go_back_as_they_came(anthropic: dict[str, Any]) -> None:
    assert anthropic["signed"] == "and then?"
    assert anthropic["thought"] == "result 0"


def test_the_library_reads_json_tokens_and_images(anthropic: dict[str, Any]) -> None:
    assert anthropic["parsed"] == {"city": "city", "days": 1}
    assert anthropic["counted"] == {"input_tokens": 5}
    assert anthropic["image"] == "[image/png 3 bytes] look"
    assert anthropic["async"] == {"whole": "one two three", "streamed": "one two three"}


@pytest.mark.parametrize(
    ("case", "kind", "status", "error"),
    [
        ("status:400", "BadRequestError", 400, "invalid_request_error"),
        ("status:401", "AuthenticationError", 401, "authentication_error"),
        ("status:403", "PermissionDeniedError", 403, "permission_error"),
        ("status:404", "NotFoundError", 404, "not_found_error"),
        ("status:413", "ContentTooLargeError", 413, "request_too_large"),
        ("status:429", "RateLimitError", 429, "rate_limit_error"),
        ("status:500", "InternalServerError", 500, "api_error"),
        ("status:529", "OverloadedError", 529, "overloaded_error"),
        ("overloaded", "OverloadedError", 529, "overloaded_error"),
        ("unknown", "NotFoundError", 404, "not_found_error"),
        ("no key", "AuthenticationError", 401, "authentication_error"),
        ("extra", "BadRequestError", 400, "invalid_request_error"),
        ("in stream", "APIStatusError", 200, "overloaded_error"),
    ],
)
def test_errors_are_the_anthropic_library_s_own(
    anthropic: dict[str, Any], case: str, kind: str, status: int, error: str
) -> None:
    expected = {"class": kind, "status": status, "type": error}
    assert anthropic["refusals"][case] == expected


# ---------------------------------------------------------------------------------------- chats


@pytest.mark.parametrize("kind", [*CHATS, "reasoning-details"])
def test_every_field_of_a_chat_is_published_or_a_known_extension(
    openai: dict[str, Any], kind: str
) -> None:
    names = {path.rpartition(".")[2] for path in openai["chats"][kind]["unknown"]}
    assert names == REASONING_EXTENSIONS.get(kind, set())


@pytest.mark.parametrize("kind", CHATS)
def test_a_chat_says_the_same_whole_and_streamed(openai: dict[str, Any], kind: str) -> None:
    seen = openai["chats"][kind]
    assert seen["streamed"] == seen["whole"]
    assert seen["done"] == "[DONE]"


def test_several_choices_have_a_text_and_probabilities_each(openai: dict[str, Any]) -> None:
    first, second = openai["chats"]["large-2026"]["streamed"]["choices"]
    assert (first["content"], first["tokens"]) == ("one two", ["one", " two"])
    assert (second["content"], second["tokens"]) == ("one two #1", ["one", " two", " #1"])


# ------------------------------------------------------------------------------------ responses


@pytest.mark.parametrize("kind", RESPONSES)
def test_every_field_of_a_response_is_published(openai: dict[str, Any], kind: str) -> None:
    assert openai["responses"][kind]["unknown"] == []


@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response_says_the_same_whole_and_streamed(openai: dict[str, Any], kind: str) -> None:
    seen = openai["responses"][kind]
    assert seen["same"]
    assert seen["streamed"] == seen["whole"]
    assert seen["helper"] == [item["type"] for item in seen["whole"]]


@pytest.mark.parametrize("kind", RESPONSES)
def test_the_events_of_a_response_are_numbered_and_end_with_the_terminal_one(
    openai: dict[str, Any], kind: str
) -> None:
    seen = openai["responses"][kind]
    assert seen["types"][:2] == ["response.created", "response.in_progress"]
    assert seen["types"][-1] == f"response.{seen['status']}"
    assert seen["numbers"] == list(range(len(seen["numbers"])))


def test_a_thought_is_told_and_sealed_as_far_as_it_was_asked_for(openai: dict[str, Any]) -> None:
    thought, _ = openai["responses"]["reasoning"]["whole"]
    assert thought["summary"] == [{"type": "summary_text", "text": "Let me think about it."}]
    assert thought["encrypted_content"].startswith("enc-")
    details = openai["responses"]["reasoning"]["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": 5}


def test_calls_and_thoughts_go_back_as_they_came(openai: dict[str, Any]) -> None:
    assert openai["results"] == "result 0 result 1"
    assert openai["custom"] == "result 0"
    assert openai["sealed"] == "and then?"


def test_the_openai_library_reads_json_and_images(openai: dict[str, Any]) -> None:
    assert openai["parsed"] == {"city": "city", "days": 1}
    assert openai["image"] == ["[image/png 3 bytes] look"] * 2
    assert openai["async"] == {"whole": "one two three"}


def test_a_response_may_fail_in_the_middle(openai: dict[str, Any]) -> None:
    expected = {"type": "response.failed", "status": "failed", "code": "server_error"}
    assert openai["failed"] == expected


@pytest.mark.parametrize(
    ("case", "kind", "status", "code"),
    [
        ("status:400", "BadRequestError", 400, None),
        ("status:401", "AuthenticationError", 401, "invalid_api_key"),
        ("status:403", "PermissionDeniedError", 403, "unsupported_country_region_territory"),
        ("status:404", "NotFoundError", 404, "model_not_found"),
        ("status:429", "RateLimitError", 429, "rate_limit_exceeded"),
        ("status:500", "InternalServerError", 500, None),
        ("nothing", "NotFoundError", 404, "model_not_found"),
        ("extra", "BadRequestError", 400, "unknown_parameter"),
        ("stored", "BadRequestError", 400, "unsupported_value"),
        ("short", "BadRequestError", 400, "integer_below_min_value"),
    ],
)
def test_errors_are_the_openai_library_s_own(
    openai: dict[str, Any], case: str, kind: str, status: int, code: str | None
) -> None:
    expected = {"class": kind, "status": status, "code": code}
    assert openai["refusals"][case] == expected
