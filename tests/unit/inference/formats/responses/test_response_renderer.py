"""Rendering a canonical response in the responses format."""

import json
from typing import Any

import pytest

from tests.support.stream_checks.responses import check_response
from tests.unit.inference.formats.responses.response_fixtures import (
    IDENTITY,
    PATCH,
    WEATHER,
    charge,
    reply,
    request,
)
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import (
    OPENAI,
    Block,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    pack,
)
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.wire import raw


def rendered(*blocks: Block, request_fields: Any = None, **fields: Any) -> dict[str, Any]:
    asked = request(**(request_fields or {"tools": [PATCH, WEATHER]}))
    source = TranslationSource(asked, RESPONSES_CLIENT)
    shown = json.loads(
        RESPONSES_CLIENT.render_response(source, reply(*blocks, **fields), IDENTITY, charge())
    )
    check_response(shown)
    return shown


def test_a_response_has_the_gateways_fields() -> None:
    shown = rendered(TextBlock("Hi."))
    ours = {"id": "gen-1", "model": "acme/large", "created_at": 1700000000, "output_text": "Hi."}
    assert {name: shown[name] for name in ours} == ours
    assert (shown["store"], shown["background"], shown["previous_response_id"]) == (
        False,
        False,
        None,
    )


def test_a_response_repeats_the_request_parameters() -> None:
    asked = {
        "instructions": "Be kind.",
        "tools": [WEATHER, {"type": "web_search"}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "max_output_tokens": 99,
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_object"}},
        "reasoning": {"effort": "low"},
        "truncation": "auto",
        "user": "u",
    }
    shown = rendered(request_fields=asked)
    same = asked.keys() - {"tools"}
    assert {name: shown[name] for name in same} == {name: asked[name] for name in same}
    assert shown["tools"] == [WEATHER | {"strict": False}, {"type": "web_search"}]


def test_a_custom_tool_choice_is_rendered_as_a_function_choice() -> None:
    asked = {"tools": [PATCH], "tool_choice": {"type": "custom", "name": "apply_patch"}}
    shown = rendered(request_fields=asked)["tool_choice"]
    assert shown == {"type": "function", "name": "apply_patch"}


def test_blocks_become_items_in_order() -> None:
    shown = rendered(
        ReasoningBlock("hm", is_summary=True, encrypted="gA", id="rs_9", format=OPENAI),
        TextBlock("a"),
        RefusalBlock("b"),
        ToolCall("c1", "get_weather", "{}"),
        ToolCall("c2", "apply_patch", '{"input":"x"}'),
    )
    assert [(item["type"], item["id"]) for item in shown["output"]] == [
        ("reasoning", "rs_9"),
        ("message", "msg_gen-1_1"),
        ("function_call", "fc_gen-1_2"),
        ("custom_tool_call", "ctc_gen-1_3"),
    ]
    assert shown["output"][0]["encrypted_content"] == "gA"
    assert shown["output"][3]["input"] == "x"


def test_openais_reasoning_without_an_id_is_packed() -> None:
    block = ReasoningBlock(encrypted="gA", format=OPENAI)
    assert rendered(block)["output"][0]["encrypted_content"] == pack(block)


@pytest.mark.parametrize(
    ("finish_reason", "status"),
    [("length", "incomplete"), ("content_filter", "incomplete"), ("tool_calls", "completed")],
)
def test_the_last_item_has_the_status_of_the_response(finish_reason: str, status: str) -> None:
    shown = rendered(ReasoningBlock("a"), TextBlock("b"), finish_reason=finish_reason)
    assert shown["status"] == status
    assert [item["status"] for item in shown["output"]] == ["completed", status]


def test_a_failed_reply_becomes_a_failed_response_with_its_output() -> None:
    shown = rendered(TextBlock("a"), finish_reason="error")
    assert (shown["status"], shown["error_type"]) == ("failed", "provider_unavailable")
    assert shown["output_text"] == "a"


def test_log_probabilities_are_rendered_with_the_first_text() -> None:
    token = {"token": "a", "logprob": -0.5}
    logprobs = raw({"content": [token], "refusal": None})
    shown = rendered(RefusalBlock("r"), TextBlock("a"), TextBlock("b"), logprobs=logprobs)
    parts = shown["output"][0]["content"]
    assert [part.get("logprobs") for part in parts] == [None, [token], []]
