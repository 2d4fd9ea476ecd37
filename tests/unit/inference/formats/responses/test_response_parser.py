"""Converting a provider's complete response to the canonical form."""

from typing import Any

import pytest

from tests.unit.inference.formats.responses.provider import (
    CALL,
    MESSAGE,
    PATCH,
    REASONING,
    SEARCH,
    USAGE,
    body,
)
from tests.unit.inference.formats.responses.response_fixtures import USAGE as COUNTED
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.types import (
    OPENAI,
    CanonicalResponse,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.responses.provider_request import RESPONSES_PROVIDER


def read(*output: dict[str, Any], **fields: Any) -> CanonicalResponse:
    return RESPONSES_PROVIDER.parse_response(body(*output, **fields))


def message(*content: dict[str, Any]) -> dict[str, Any]:
    return MESSAGE | {"content": list(content)}


def test_items_are_parsed_in_order() -> None:
    blocks = read(REASONING, SEARCH, MESSAGE, CALL, PATCH).choices[0].blocks
    assert blocks == (
        ReasoningBlock("One.\n\nTwo.", is_summary=True, encrypted="gAAA", id="rs_1", format=OPENAI),
        TextBlock("Hello!"),
        ToolCall("call_1", "get_weather", '{"city":"Rome"}'),
        ToolCall("call_2", "apply_patch", '{"input":"say \\"hi\\""}'),
    )


def test_a_refusal_is_parsed_as_a_refusal() -> None:
    reply = read(message({"type": "refusal", "refusal": "No."}, {"type": "novelty"}))
    assert reply.choices[0].blocks == (RefusalBlock("No."),)


def test_reasoning_text_is_not_a_summary() -> None:
    item = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert read(item).choices[0].blocks == (ReasoningBlock("hm", format=OPENAI),)


def test_encrypted_content_may_come_without_text() -> None:
    blocks = read(REASONING | {"summary": []}).choices[0].blocks
    assert blocks == (ReasoningBlock(encrypted="gAAA", id="rs_1", format=OPENAI),)


def test_log_probabilities_of_all_text_are_joined() -> None:
    token = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    part = {"type": "output_text", "text": "a", "logprobs": [token]}
    logprobs = read(message(part, part)).choices[0].logprobs
    assert logprobs is not None
    assert bytes(logprobs).count(b'"token"') == 2


@pytest.mark.parametrize(
    ("output", "fields", "ended"),
    [
        ([MESSAGE], {}, ("stop", "completed")),
        ([MESSAGE], {"status": None}, ("stop", "completed")),
        ([CALL], {}, ("tool_calls", "completed")),
        (
            [CALL],
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            ("length", "max_output_tokens"),
        ),
        (
            [],
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            ("content_filter", "content_filter"),
        ),
        ([], {"status": "incomplete"}, ("length", "incomplete")),
    ],
)
def test_each_status_has_its_finish_reason(
    output: Any, fields: Any, ended: tuple[str, str]
) -> None:
    choice = read(*output, **fields).choices[0]
    assert (choice.finish_reason, choice.native_finish_reason) == ended


def test_the_usage_is_counted_in_disjoint_classes() -> None:
    reply = read(MESSAGE)
    assert reply.usage == COUNTED
    assert reply.upstream_id == "resp_1"


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        5,
        USAGE | {"input_tokens": -1},
        USAGE | {"output_tokens": 2**31},
        USAGE | {"output_tokens": "10"},
        {"input_tokens": 5},
        USAGE | {"output_tokens_details": {"reasoning_tokens": -3}},
    ],
)
def test_an_implausible_usage_is_ignored(usage: Any) -> None:
    assert read(MESSAGE, usage=usage).usage is None


@pytest.mark.parametrize(
    "fields",
    [
        {"error": {"code": "server_error", "message": "Sorry."}},
        {"status": "failed", "error": {"code": "server_error", "message": "Sorry."}},
    ],
)
def test_a_failed_response_raises_the_providers_error(fields: dict[str, Any]) -> None:
    with pytest.raises(ErrorEvent) as raised:
        read(**fields)
    assert (raised.value.code, raised.value.message) == ("server_error", "Sorry.")


@pytest.mark.parametrize(
    "unreadable",
    [
        b"",
        b"[]",
        b"{}",
        b'{"output":null}',
        b"[" * 100_000,
        b'{"output":' + b"[" * 100_000,
        body({"type": "message", "content": 5}),
        body({"type": "function_call", "name": "f"}),
        body({"type": "reasoning", "summary": [5]}),
        body({"type": 5}),
        body(MESSAGE, status="in_progress"),
    ],
)
def test_a_body_that_is_not_a_response_is_malformed(unreadable: bytes) -> None:
    with pytest.raises(MalformedResponse):
        RESPONSES_PROVIDER.parse_response(unreadable)


def test_invalid_utf8_is_replaced() -> None:
    reply = RESPONSES_PROVIDER.parse_response(body(MESSAGE).replace(b"Hello!", b"\xff"))
    assert reply.choices[0].blocks == (TextBlock("\N{REPLACEMENT CHARACTER}"),)
