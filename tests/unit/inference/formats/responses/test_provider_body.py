import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.inference.formats.responses.response_fixtures import ENDPOINT
from tollhouse.inference.formats.canonical.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    RefusalBlock,
    Role,
    TextBlock,
    ToolCall,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.canonical.reasoning import ANTHROPIC, OPENAI
from tollhouse.inference.formats.canonical.request import (
    CanonicalRequest,
    CanonicalToolChoice,
    JsonOutput,
    ThinkingOptions,
    ToolDefinition,
)
from tollhouse.inference.formats.responses.provider_format import ResponsesProviderFormat
from tollhouse.inference.types import Profile
from tollhouse.kernel.errors import Invalid

HELLO = (Turn("user", (TextBlock("hello"),)),)
PATCH = ToolDefinition("apply_patch", "Edit.", freeform=True)
WEATHER = ToolDefinition("get_weather", parameters=msgspec.Raw(b'{"type":"object"}'))
PICTURE = ImageBlock("data:image/png;base64,QQ")
PROOF = ReasoningBlock("Sum.", is_summary=True, encrypted="gA", id="rs_1", format=OPENAI)


def asked(prompt: CanonicalRequest | None = None, **fields: Any) -> dict[str, Any]:
    """Return the provider's body for a prompt."""
    return json.loads(
        ResponsesProviderFormat().render_request(
            prompt or CanonicalRequest(HELLO, **fields), ENDPOINT
        )
    )


def items(
    *turns: tuple[Role, tuple[Block, ...]], tools: tuple[ToolDefinition, ...] = ()
) -> list[Any]:
    return asked(CanonicalRequest(tuple(Turn(*turn) for turn in turns), tools=tools))["input"]


def test_the_least_that_is_asked() -> None:
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


def test_the_system_speaks_first_as_instructions_and_later_as_developer() -> None:
    system = Turn("system", (TextBlock("a"), TextBlock("b")))
    body = asked(CanonicalRequest((system, system, *HELLO, Turn("system", (TextBlock("c"),)))))
    assert body["instructions"] == "a\n\nb\n\na\n\nb"
    assert [item["role"] for item in body["input"]] == ["user", "developer"]


def test_a_conversation_of_the_system_alone_has_an_input() -> None:
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
def test_each_kind_of_block_is_said(block: Block, part: dict[str, Any]) -> None:
    assert items(("user", (block,)))[0]["content"] == [part]


def test_a_recording_is_refused_and_not_forgotten() -> None:
    with pytest.raises(Invalid, match="recording"):
        items(("user", (AudioBlock("QQ", "wav"),)))


def test_ids_of_calls_are_as_short_as_the_dialect_wants_them() -> None:
    long = "c" * 65
    call, output = items(
        ("assistant", (ToolCall(long, "f", "{}"),)), ("user", (ToolResult(long, ()),))
    )
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


def test_results_come_before_what_the_user_says() -> None:
    result = ToolResult("c1", (TextBlock("5"), TextBlock("6")))
    assert [item["type"] for item in items(("user", (result, TextBlock("go on"))))] == [
        "function_call_output",
        "message",
    ]


def test_a_result_is_a_text_where_that_is_enough() -> None:
    (text,) = items(("user", (ToolResult("c1", (TextBlock("5"), TextBlock("6"))),)))
    assert (text["call_id"], text["output"]) == ("c1", "5\n6")
    (parts,) = items(("user", (ToolResult("c1", (TextBlock("5"), PICTURE)),)))
    assert [part["type"] for part in parts["output"]] == ["input_text", "input_image"]


def test_what_the_assistant_did_keeps_its_order() -> None:
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
def test_nobody_gets_thoughts_that_it_cannot_prove(foreign: ReasoningBlock) -> None:
    assert items(("assistant", (foreign,))) == []


def test_calls_of_a_tool_that_takes_a_text_are_custom() -> None:
    call = ToolCall("c1", "apply_patch", '{"input":"x\\n"}')
    result = ToolResult("c1", (TextBlock("ok"),))
    told = items(("assistant", (call,)), ("user", (result,)), tools=(PATCH,))
    assert told == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "x\n"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    ]


def test_a_call_without_arguments_has_an_empty_object() -> None:
    assert items(("assistant", (ToolCall("c1", "f", ""),)))[0]["arguments"] == "{}"


def test_tools_are_not_strict_unless_they_say_so() -> None:
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
def test_each_tool_choice_is_said(choice: CanonicalToolChoice, said: Any) -> None:
    body = asked(tools=(WEATHER, PATCH), tool_choice=choice, parallel_tool_calls=False)
    assert (body["tool_choice"], body["parallel_tool_calls"]) == (said, False)


def test_a_choice_without_tools_is_not_said() -> None:
    body = asked(tool_choice=CanonicalToolChoice("auto"), parallel_tool_calls=True)
    assert body.keys().isdisjoint({"tool_choice", "parallel_tool_calls", "tools"})


@pytest.mark.parametrize(("wanted", "said"), [(0, 16), (1, 16), (16, 16), (500, 500)])
def test_the_output_has_the_least_size_that_is_taken(wanted: int, said: int) -> None:
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
def test_each_form_of_the_answer_is_said(output: JsonOutput, said: Any) -> None:
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
def test_thinking_is_said_as_effort_and_its_proof_asked_for(
    thinking: ThinkingOptions, said: Any
) -> None:
    body = asked(thinking=thinking)
    assert body["reasoning"] == said
    assert body["include"] == ["reasoning.encrypted_content"]


def test_a_model_that_thought_before_is_asked_for_its_proof() -> None:
    body = asked(CanonicalRequest((Turn("assistant", (PROOF,)), *HELLO)))
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "reasoning" not in body


def test_thinking_that_is_switched_off_is_not_asked_for() -> None:
    assert (
        asked(thinking=ThinkingOptions(enabled=False)).keys().isdisjoint({"reasoning", "include"})
    )
    assert "include" not in asked(thinking=ThinkingOptions("none"))


def test_the_other_parameters_that_the_dialect_knows_are_said() -> None:
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


def test_what_the_provider_refuses_is_left_out() -> None:
    picky = replace(ENDPOINT, profile=Profile(refuses=frozenset({"store", "user"})))
    body = json.loads(
        ResponsesProviderFormat().render_request(CanonicalRequest(HELLO, user="u"), picky)
    )
    assert body.keys() == {"model", "input"}
