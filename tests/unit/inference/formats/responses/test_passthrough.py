"""Passing responses requests and complete responses through."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.stream_checks.responses import check_response
from tests.unit.inference.formats.responses.provider import CALL, MESSAGE, USAGE, body, response
from tests.unit.inference.formats.responses.response_fixtures import (
    ENDPOINT,
    IDENTITY,
    WEATHER,
    charge,
    request,
)
from tests.unit.inference.formats.responses.response_fixtures import USAGE as COUNTED
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.types import ANTHROPIC, OPENAI, ReasoningBlock, pack
from tollhouse.inference.formats.responses.passthrough import ResponsesPassthroughAdapter
from tollhouse.inference.formats.responses.wire import parse_request
from tollhouse.inference.providers.registry import server_of
from tollhouse.inference.types import Profile
from tollhouse.kernel.errors import ProviderUnavailable
from tollhouse.settings.sections import ProviderSettings


def asked(*, refuses: frozenset[str] = frozenset(), **fields: Any) -> dict[str, Any]:
    endpoint = replace(ENDPOINT, profile=Profile(refuses=refuses))
    return json.loads(ResponsesPassthroughAdapter(request(**fields)).render_request(endpoint))


def rendered(provider: bytes, **fields: Any) -> dict[str, Any]:
    whole = ResponsesPassthroughAdapter(request(**fields)).parse_response(provider)
    return json.loads(whole.render(IDENTITY, charge(whole.reported)))


# Requests


def test_a_request_is_forwarded_with_the_providers_model_name() -> None:
    fields: dict[str, Any] = {
        "novelty": {"a": [1]},
        "tools": [WEATHER, {"type": "web_search"}],
        "temperature": 1,
    }
    assert asked(**fields) == fields | {"model": "large-2026", "input": "hello", "store": False}


def test_gateway_fields_are_left_out() -> None:
    assert asked(provider={"only": ["acme"]}, models=["a"]).keys() == {"model", "input", "store"}


def test_rejected_parameters_are_left_out_and_listed() -> None:
    refuses = frozenset({"store", "user", "metadata"})
    assert asked(refuses=refuses, user="u").keys() == {"model", "input"}
    picky = replace(ENDPOINT, profile=Profile(refuses=refuses))
    assert ResponsesPassthroughAdapter(request(user="u")).unsupported_parameters(picky) == {"user"}


def test_only_openais_reasoning_is_sent_back() -> None:
    native = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA"}
    foreign = native | {
        "encrypted_content": pack(ReasoningBlock("a", signature="s", format=ANTHROPIC))
    }
    own = ReasoningBlock("a", is_summary=True, encrypted="gB", id="rs_2", format=OPENAI)
    message = {"role": "user", "content": 'a "encrypted_content"'}
    packed = native | {"encrypted_content": pack(own)}
    odd = {"type": "reasoning", "encrypted_content": 5}
    assert asked(input=[native, foreign, packed, odd, message])["input"] == [
        native,
        {
            "type": "reasoning",
            "id": "rs_2",
            "summary": [{"type": "summary_text", "text": "a"}],
            "encrypted_content": "gB",
        },
        odd,
        message,
    ]


# Responses


def test_a_response_gets_only_the_gateways_id_and_model() -> None:
    given = response(MESSAGE, CALL)
    shown = rendered(body(MESSAGE, CALL))
    check_response(shown)
    assert (shown["id"], shown["model"]) == ("gen-1", "acme/large")
    same = given.keys() - {"id", "model", "usage"}
    assert {name: shown[name] for name in same} == {name: given[name] for name in same}


def test_a_response_has_the_keys_that_clients_require() -> None:
    shown = rendered(b'{"output":[],"status":"completed"}', temperature=0.5, tools=[WEATHER])
    check_response(shown)
    assert shown["temperature"] == 0.5
    assert shown["tools"] == [WEATHER | {"strict": False}]


def test_the_usage_is_that_of_the_charge() -> None:
    usage = rendered(body(MESSAGE))["usage"]
    assert {name: usage[name] for name in USAGE.keys() - {"input_tokens_details"}} == {
        name: USAGE[name] for name in USAGE.keys() - {"input_tokens_details"}
    }
    assert usage["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 0}
    assert usage["is_byok"] is False
    assert usage["cost_details"].keys() == {
        "upstream_inference_cost",
        "upstream_inference_input_cost",
        "upstream_inference_output_cost",
    }


def test_an_unknown_cost_is_null() -> None:
    usage = rendered(body(MESSAGE, usage=None))["usage"]
    assert usage["cost"] is None
    assert "cost_details" not in usage


def test_a_response_is_parsed_for_its_metadata() -> None:
    whole = ResponsesPassthroughAdapter(request()).parse_response(body(CALL))
    assert (whole.finish_reason, whole.native_finish_reason) == ("tool_calls", "completed")
    assert (whole.upstream_id, whole.reported, whole.seen) == ("resp_1", COUNTED, COUNTED)


def test_without_usage_tokens_are_estimated_from_the_bytes() -> None:
    whole = ResponsesPassthroughAdapter(request()).parse_response(body(MESSAGE, CALL, usage=None))
    assert whole.reported is None
    said = len("Hello!") + len(CALL["arguments"])
    assert whole.seen.output_tokens == -(-said // 4)
    assert whole.seen.input_tokens > 0


def test_a_failed_response_is_the_providers_error() -> None:
    with pytest.raises(ErrorEvent):
        ResponsesPassthroughAdapter(request()).parse_response(
            body(status="failed", error={"message": "Sorry."})
        )


def test_a_body_that_is_not_a_response_is_malformed() -> None:
    with pytest.raises(MalformedResponse):
        ResponsesPassthroughAdapter(request()).parse_response(b'{"choices":[]}')


def test_gateway_extensions_are_left_out_unless_the_server_accepts_them() -> None:
    given = {"stop": ["a"], "top_k": 3, "reasoning": {"effort": "low", "enabled": True}}
    body = asked(**given)
    assert body["reasoning"] == {"effort": "low"}
    assert not body.keys() & {"stop", "top_k"}
    knows = replace(ENDPOINT, profile=Profile(takes_extensions=True))
    request = parse_request(json.dumps({"model": "m", "input": "a"} | given).encode())
    assert (
        json.loads(ResponsesPassthroughAdapter(request).render_request(knows)).items()
        >= given.items()
    )


def test_openai_accepts_reasoning_in_responses_but_not_in_chats() -> None:
    openai = server_of(
        ProviderSettings(slug="o", kind="openai_compatible", base_url="https://api.openai.com/v1")
    )
    request = parse_request(b'{"model":"m","input":"a","reasoning":{"effort":"high"}}')
    adapter, endpoint = (
        ResponsesPassthroughAdapter(request),
        replace(ENDPOINT, profile=openai.profile),
    )
    assert not adapter.unsupported_parameters(endpoint)
    assert json.loads(adapter.render_request(endpoint))["reasoning"] == {"effort": "high"}


def test_a_multi_line_request_gives_legal_stream_events() -> None:
    given = {"model": "m", "input": "a", "stream": True, "metadata": {"a": "b"}}
    body = json.dumps(given, indent=2)
    request = parse_request(body.replace("\n", "\r\n").encode())
    error = ProviderUnavailable("Acme failed.", provider_name="Acme")
    stream = ResponsesPassthroughAdapter(request).open_stream(IDENTITY).fail(error)
    assert b"\r" not in stream
    assert all(line.startswith((b"event: ", b"data: ")) for line in stream.split(b"\n") if line)
