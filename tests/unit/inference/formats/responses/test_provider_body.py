import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.inference.formats.responses.response_fixtures import ENDPOINT
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    OPENAI,
    AudioBlock,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    ReasoningBlock,
    RefusalBlock,
    Role,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.responses.provider_request import RESPONSES_PROVIDER
from tollhouse.inference.types import Profile
from tollhouse.kernel.errors import Invalid

HELLO = (Turn("user", (TextBlock("hello"),)),)
PATCH = ToolDefinition("apply_patch", "Edit.", freeform=True)
WEATHER = ToolDefinition("get_weather", parameters=msgspec.Raw(b'{"type":"object"}'))
PICTURE = ImageBlock("data:image/png;base64,QQ")
PROOF = ReasoningBlock("Sum.", is_summary=True, encrypted="gA", id="rs_1", format=OPENAI)


def asked(prompt: CanonicalRequest | None = None, **fields: Any) -> dict[str, Any]:
    """Return the provider's request body."""
    return json.loads(
        RESPONSES_PROVIDER.render_request(prompt or CanonicalRequest(HELLO, **fields), ENDPOINT)
    )


def items(
    *turns: tuple[Role, tuple[Block, ...]], tools: tuple[ToolDefinition, ...] = ()
) -> list[Any]:
    return asked(CanonicalRequest(tuple(Turn(*turn) for turn in turns), tools=tools))["input"]


def test_a_minimal_request_has_only_required_fields() -> None:
    assert asked() == {
        "model": "large-2026",
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "hello"}],
            }
        ],
        "store": False,
    }


def test_leading_system_turns_are_instructions_and_later_ones_developer_messages() -> None:
    system = Turn("system", (TextBlock("a"), TextBlock("b")))
    body = asked(CanonicalRequest((system, system, *HELLO, Turn("system", (TextBlock("c"),)))))
    assert body["instructions"] == "a\n\nb\n\na\n\nb"
    assert [item["role"] for item in body["input"]] == ["user", "developer"]


def test_a_conversation_of_system_turns_alone_has_an_input() -> None:
    body = asked(CanonicalRequest((Turn("system", (TextBlock("a"),)),)))
    assert [item["role"] for item in body["input"]] == ["developer"]
    assert "instructions" not in body


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PICTURE, {"type": "input_image", "image_url": PICTURE.url}),
        (
            ImageBlock("https://x", "low"),
            {"type": "input_image", "image_url": "https://x", "detail": "low"},
        ),
        (DocumentBlock(url="https://x"), {"type": "input_file", "file_url": "https://x"}),
        (
            DocumentBlock(url="data:a", name="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:a"},
        ),
        (DocumentBlock(text="abc"), {"type": "input_text", "text": "abc"}),
    ],
)
def test_each_type_of_block_is_rendered(block: Block, part: dict[str, Any]) -> None:
    assert items(("user", (block,)))[0]["content"] == [part]


def test_audio_is_rejected_rather_than_dropped() -> None:
    with pytest.raises(Invalid, match="recording"):
        items(("user", (AudioBlock("QQ", "wav"),)))


def test_call_ids_are_shortened_to_the_dialects_limit() -> None:
    long = "c" * 65
    call, output = items(
        ("assistant", (ToolCall(long, "f", "{}"),)), ("user", (ToolResult(long, ()),))
    )
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


def test_tool_results_come_before_user_text() -> None:
    result = ToolResult("c1", (TextBlock("5"), TextBlock("6")))
    assert [item["type"] for item in items(("user", (result, TextBlock("go on"))))] == [
        "function_call_output",
        "message",
    ]


def test_a_text_only_result_is_a_string() -> None:
    (text,) = items(("user", (ToolResult("c1", (TextBlock("5"), TextBlock("6"))),)))
    assert (text["call_id"], text["output"]) == ("c1", "5\n6")
    (parts,) = items(("user", (ToolResult("c1", (TextBlock("5"), PICTURE)),)))
    assert [part["type"] for part in parts["output"]] == ["input_text", "input_image"]


def test_assistant_items_keep_their_order() -> None:
    call = ToolCall("c1", "get_weather", '{"a":1}')
    told = items(("assistant", (PROOF, TextBlock("a"), RefusalBlock("b"), call, TextBlock("c"))))
    assert told == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Sum."}],
            "encrypted_content": "gA",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "a", "annotations": []},
                {"type": "refusal", "refusal": "b"},
            ],
        },
        {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"a":1}'},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "c", "annotations": []}],
        },
    ]


@pytest.mark.parametrize(
    "foreign",
    [
        ReasoningBlock("a", signature="s", format=ANTHROPIC),
        ReasoningBlock("a"),
        ReasoningBlock("a", id="rs_1", format=OPENAI),
        ReasoningBlock(encrypted="gA"),
    ],
)
def test_unverifiable_reasoning_is_not_sent(foreign: ReasoningBlock) -> None:
    assert items(("assistant", (foreign,))) == []


def test_calls_of_a_freeform_tool_are_custom_calls() -> None:
    call = ToolCall("c1", "apply_patch", '{"input":"x\\n"}')
    result = ToolResult("c1", (TextBlock("ok"),))
    told = items(("assistant", (call,)), ("user", (result,)), tools=(PATCH,))
    assert told == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x\n"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    ]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert items(("assistant", (ToolCall("c1", "f", ""),)))[0]["arguments"] == "{}"


def test_tools_are_not_strict_by_default() -> None:
    tools = asked(tools=(WEATHER, ToolDefinition("now", strict=True), PATCH))["tools"]
    assert tools == [
        {
            "type": "function",
            "name": "get_weather",
            "parameters": {"type": "object"},
            "strict": False,
        },
        {
            "type": "function",
            "name": "now",
            "parameters": {"type": "object", "properties": {}},
            "strict": True,
        },
        {"type": "custom", "name": "apply_patch", "description": "Edit."},
    ]


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (CanonicalToolChoice("required"), "required"),
        (CanonicalToolChoice("named", "get_weather"), {"type": "function", "name": "get_weather"}),
        (CanonicalToolChoice("named", "apply_patch"), {"type": "custom", "name": "apply_patch"}),
    ],
)
def test_each_tool_choice_is_rendered(choice: CanonicalToolChoice, said: Any) -> None:
    body = asked(tools=(WEATHER, PATCH), tool_choice=choice, parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (said, False)


def test_a_tool_choice_without_tools_is_left_out() -> None:
    body = asked(tool_choice=CanonicalToolChoice("auto"), parallel_tool_calls=True)
    assert body.keys().isdisjoint({"tool_choice", "parallel_tool_calls", "tools"})


@pytest.mark.parametrize(("wanted", "said"), [(0, 16), (1, 16), (16, 16), (500, 500)])
def test_a_small_output_limit_is_raised_to_the_minimum(wanted: int, said: int) -> None:
    assert asked(max_tokens=wanted)["max_output_tokens"] == said


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (JsonOutput(), {"type": "json_object"}),
        (
            JsonOutput(msgspec.Raw(b"{}"), strict=True),
            {"type": "json_schema", "name": "answer", "schema": {}, "strict": True},
        ),
    ],
)
def test_each_output_format_is_rendered(output: JsonOutput, said: Any) -> None:
    assert asked(output=output, verbosity="low")["text"] == {"format": said, "verbosity": "low"}


@pytest.mark.parametrize(
    ("thinking", "said"),
    [
        (ThinkingOptions("high", summary="auto"), {"effort": "high", "summary": "auto"}),
        (ThinkingOptions(budget_tokens=16_000), {"effort": "high", "summary": "auto"}),
        (ThinkingOptions(budget_tokens=4_000), {"effort": "medium", "summary": "auto"}),
        (ThinkingOptions(budget_tokens=1), {"effort": "low", "summary": "auto"}),
        (ThinkingOptions("low", budget_tokens=50_000), {"effort": "low", "summary": "auto"}),
        (ThinkingOptions("low", summary="auto", exclude=True), {"effort": "low"}),
    ],
)
def test_thinking_becomes_an_effort_with_encrypted_reasoning(
    thinking: ThinkingOptions, said: Any
) -> None:
    body = asked(thinking=thinking)
    assert body["reasoning"] == said
    assert body["include"] == ["reasoning.encrypted_content"]


def test_encrypted_reasoning_is_requested_if_the_history_has_some() -> None:
    body = asked(CanonicalRequest((Turn("assistant", (PROOF,)), *HELLO)))
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "reasoning" not in body


def test_disabled_thinking_is_left_out() -> None:
    assert (
        asked(thinking=ThinkingOptions(enabled=False)).keys().isdisjoint({"reasoning", "include"})
    )
    assert "include" not in asked(thinking=ThinkingOptions("none"))


def test_the_other_supported_parameters_are_rendered() -> None:
    sampling = {
        name: msgspec.Raw(b"1")
        for name in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "service_tier")
    }
    body = asked(
        stream=True,
        sampling=sampling,
        stop=("a",),
        choices=2,
        logprobs=True,
        top_logprobs=3,
        user="u",
        metadata=msgspec.Raw(b'{"a":"b"}'),
    )
    assert {name: body[name] for name in body.keys() - {"model", "input", "store"}} == {
        "stream": True,
        "temperature": 1,
        "top_p": 1,
        "service_tier": 1,
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 3,
        "user": "u",
        "metadata": {"a": "b"},
    }


def test_rejected_parameters_are_left_out() -> None:
    picky = replace(ENDPOINT, profile=Profile(refuses=frozenset({"store", "user"})))
    body = json.loads(RESPONSES_PROVIDER.render_request(CanonicalRequest(HELLO, user="u"), picky))
    assert body.keys() == {"model", "input"}
