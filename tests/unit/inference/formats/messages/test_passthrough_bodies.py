"""Passing complete messages responses through."""

import json
from typing import Any

import pytest

from tests.support.stream_checks.messages import check_usage
from tests.unit.inference.formats.messages.samples import CHARGE, IDENTITY, USAGE, USED, request
from tollhouse.accounting.types import Charge, CostState, Usage
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.messages.passthrough import (
    MessagesPassthroughAdapter,
    MessagesResponse,
)

REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-1",
    "content": [
        {"type": "text", "text": "Hello", "new_field": 1},
        {"type": "new_block", "big": 10**40},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": USAGE | {"server_tool_use": {"web_search_requests": 1}},
    "context_management": {"applied_edits": []},
}


def read(**fields: Any) -> MessagesResponse:
    return MessagesPassthroughAdapter(request()).parse_response(json.dumps(REPLY | fields).encode())


def rendered(**fields: Any) -> dict[str, Any]:
    return json.loads(read(**fields).render(IDENTITY, CHARGE))


def test_the_gateways_fields_replace_the_providers() -> None:
    got = rendered()
    ours = {name: got[name] for name in ("id", "model", "provider")}
    assert ours == {"id": "gen-1", "model": "acme/large", "provider": "Acme"}


def test_other_fields_are_the_providers() -> None:
    got = rendered()
    for name in ("content", "stop_reason", "context_management"):
        assert got[name] == REPLY[name]
    assert got["usage"]["server_tool_use"] == {"web_search_requests": 1}
    assert got["usage"]["service_tier"] == "standard"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "null", "citations": None},
        {"type": "tool_use", "id": "a", "name": "b", "input": {"c": None}, "caller": None},
    ],
)
def test_optional_fields_of_a_block_are_never_null(block: dict[str, Any]) -> None:
    (got,) = rendered(content=[block])["content"]
    assert got == {name: value for name, value in block.items() if value is not None}


def test_every_required_field_is_present() -> None:
    bare = json.dumps({"content": []}).encode()
    got = json.loads(
        MessagesPassthroughAdapter(request()).parse_response(bare).render(IDENTITY, CHARGE)
    )
    for name in ("stop_reason", "stop_sequence", "stop_details", "container"):
        assert got[name] is None
    assert (got["type"], got["role"]) == ("message", "assistant")
    check_usage(got["usage"])


def test_the_usage_is_that_of_the_charge() -> None:
    usage = rendered(usage=USAGE | {"output_tokens": 99})["usage"]
    assert usage["output_tokens"] == 7
    assert usage["cache_creation"] == USAGE["cache_creation"]
    assert usage["cost"] == pytest.approx(24e-9)
    assert usage["is_byok"] is False
    assert usage["cost_details"]["upstream_inference_cost"] is None


def test_an_unknown_cost_is_null() -> None:
    unknown = Charge(CostState.UNKNOWN, Usage(), 0, None, None)
    assert json.loads(read().render(IDENTITY, unknown))["usage"]["cost"] is None


def test_the_reported_usage_is_in_disjoint_classes() -> None:
    assert read().reported == USED
    assert read().seen == USED


@pytest.mark.parametrize(
    "usage",
    [
        None,
        5,
        {},
        {"input_tokens": 5},
        {"output_tokens": 5},
        USAGE | {"input_tokens": -1},
        USAGE | {"output_tokens": 2**31},
        USAGE | {"cache_read_input_tokens": "3"},
        USAGE | {"cache_creation": {"ephemeral_1h_input_tokens": -1}},
        USAGE | {"output_tokens_details": {"thinking_tokens": 1.5}},
    ],
)
def test_invalid_token_counts_are_ignored(usage: Any) -> None:
    reply = read(usage=usage)
    assert reply.reported is None
    assert reply.seen.output_tokens > 0
    assert json.loads(reply.render(IDENTITY, CHARGE))["usage"]["output_tokens"] == 7


def test_tokens_are_estimated_from_the_output_if_none_are_reported() -> None:
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {"a": "b" * 91}}
    bare = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    assert read(content=[call, bare], usage=None).seen.output_tokens == 25


@pytest.mark.parametrize(
    ("creation", "total", "expected"),
    [
        (None, 6, (6, 0)),
        ({"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 2}, None, (4, 2)),
        ({"ephemeral_5m_input_tokens": 4, "ephemeral_1h_input_tokens": 2}, 9, (7, 2)),
        ({"ephemeral_1h_input_tokens": 5}, 3, (0, 3)),
        (None, None, (0, 0)),
    ],
)
def test_cache_writes_are_split_by_lifetime(
    creation: Any, total: int | None, expected: tuple[int, int]
) -> None:
    usage = USAGE | {"cache_creation": creation, "cache_creation_input_tokens": total}
    reported = read(usage=usage).reported
    assert reported is not None
    assert (reported.cache_write_tokens, reported.cache_write_1h_tokens) == expected


@pytest.mark.parametrize(
    ("native", "normal"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
        (None, None),
    ],
)
def test_the_stop_reason_is_normalized_and_the_native_one_kept(
    native: str | None, normal: str | None
) -> None:
    reply = read(stop_reason=native)
    assert (reply.native_finish_reason, reply.finish_reason) == (native, normal)
    assert reply.upstream_id == "msg_1"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"content":5}',
        b'{"content":[5]}',
        b'{"content":[{}]}',
        b'{"content":null}',
        b'{"content":[],"id":5}',
        b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_body_that_is_not_a_message_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        MessagesPassthroughAdapter(request()).parse_response(body)


def test_invalid_utf8_is_not_forwarded() -> None:
    body = json.dumps(REPLY).encode().replace(b"Hello", b"\xff")
    got = json.loads(
        MessagesPassthroughAdapter(request()).parse_response(body).render(IDENTITY, CHARGE)
    )
    assert got["content"][0]["text"] == "\N{REPLACEMENT CHARACTER}"


def test_an_error_under_a_success_status_is_the_providers() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    with pytest.raises(ErrorEvent) as caught:
        MessagesPassthroughAdapter(request()).parse_response(body)
    assert (caught.value.code, caught.value.message) == ("overloaded_error", "Overloaded")
