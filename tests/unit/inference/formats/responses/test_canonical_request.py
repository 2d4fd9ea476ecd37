import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inference.formats.responses.response_fixtures import PATCH, WEATHER, request
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
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
    pack,
)
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.responses.wire import parse_request
from tollhouse.kernel.errors import Invalid


def prompt(**fields: Any) -> CanonicalRequest:
    return RESPONSES_CLIENT.parse_request(request(**fields))


def turns(*items: dict[str, Any], **fields: Any) -> tuple[Turn, ...]:
    return prompt(input=list(items), **fields).turns


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(content)}


def user_block(part: dict[str, Any]) -> Block:
    return turns(user(part))[0].blocks[0]


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}", "id": "fc_1"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "5"}
ASSISTANT = {"role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}


# The conversation


def test_a_string_input_is_a_user_turn() -> None:
    assert prompt().turns == (Turn("user", (TextBlock("hello"),)),)


def test_instructions_come_first() -> None:
    told = prompt(instructions="Be kind.").turns
    assert [turn.role for turn in told] == ["system", "user"]
    assert told[0].blocks == (TextBlock("Be kind."),)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_developer_message_becomes_a_system_turn_in_place(role: str) -> None:
    told = turns(user({"type": "input_text", "text": "a"}), {"role": role, "content": "b"})
    assert [turn.role for turn in told] == ["user", "system"]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "input_text", "text": "a", "novelty": 1}, TextBlock("a")),
        (
            {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"},
            ImageBlock("https://x/a.png", "low"),
        ),
        (
            {
                "type": "input_file",
                "filename": "a.pdf",
                "file_data": "data:application/pdf;base64,QQ",
            },
            DocumentBlock(url="data:application/pdf;base64,QQ", name="a.pdf"),
        ),
        (
            {"type": "input_file", "file_data": "QQ=="},
            DocumentBlock(url="data:application/pdf;base64,QQ=="),
        ),
        (
            {"type": "input_file", "file_url": "https://x/a.pdf"},
            DocumentBlock(url="https://x/a.pdf"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}},
            AudioBlock("QQ==", "wav"),
        ),
    ],
)
def test_each_type_of_part_is_parsed(part: dict[str, Any], block: Block) -> None:
    assert user_block(part) == block


def test_cache_control_is_kept() -> None:
    block = user_block({"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}})
    assert isinstance(block, TextBlock)
    assert block.cache == msgspec.Raw(b'{"type": "ephemeral"}')


def test_consecutive_assistant_items_are_one_turn_and_results_another() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA"}
    second = CALL | {"call_id": "c2"}
    told = turns(reasoning, ASSISTANT, CALL, second, OUTPUT, OUTPUT | {"call_id": "c2"})
    assert [turn.role for turn in told] == ["assistant", "user"]
    assert [type(block) for block in told[0].blocks] == [
        ReasoningBlock,
        TextBlock,
        ToolCall,
        ToolCall,
    ]
    assert [type(block) for block in told[1].blocks] == [ToolResult, ToolResult]


def test_a_user_message_after_a_result_is_a_separate_turn() -> None:
    told = turns(CALL, OUTPUT, user({"type": "input_text", "text": "go on"}))
    assert [turn.role for turn in told] == ["assistant", "user", "user"]


def test_items_of_the_providers_own_tools_are_skipped() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "content": 5, "action": {}}
    stored = {"type": "item_reference", "id": "msg_1"}
    (turn,) = turns(ASSISTANT, search, stored, CALL)
    assert [type(block) for block in turn.blocks] == [TextBlock, ToolCall]


def test_an_unknown_part_of_an_assistant_message_is_skipped() -> None:
    content = [{"type": "novelty"}, {"type": "refusal", "refusal": "No."}]
    (turn,) = turns({"role": "assistant", "content": content})
    assert turn.blocks == (RefusalBlock("No."),)


def test_a_custom_call_becomes_an_object_with_the_field_input() -> None:
    call = {"type": "custom_tool_call", "call_id": "c1", "name": "p", "input": 'a "b"'}
    (turn,) = turns(call)
    assert turn.blocks == (ToolCall("c1", "p", '{"input":"a \\"b\\""}'),)


def test_a_result_may_hold_images() -> None:
    output = [
        {"type": "input_text", "text": "a"},
        {"type": "input_image", "image_url": "data:image/png;base64,QQ"},
    ]
    (turn,) = turns({"type": "custom_tool_call_output", "call_id": "c1", "output": output})
    assert turn.blocks == (
        ToolResult("c1", (TextBlock("a"), ImageBlock("data:image/png;base64,QQ"))),
    )


def test_openais_reasoning_keeps_its_encrypted_content() -> None:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    item = {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gA"}
    expected = ReasoningBlock("a\n\nb", is_summary=True, encrypted="gA", id="rs_1", format=OPENAI)
    assert turns(item)[0].blocks == (expected,)


def test_packed_reasoning_is_unpacked() -> None:
    theirs = ReasoningBlock("hm", signature="sig", format=ANTHROPIC)
    item = {"type": "reasoning", "summary": [], "encrypted_content": pack(theirs)}
    assert turns(item)[0].blocks == (theirs,)


# Parameters


def test_only_functions_and_custom_tools_are_parsed() -> None:
    tools = prompt(tools=[WEATHER | {"strict": True}, PATCH, {"type": "web_search"}]).tools
    schema = json.dumps(WEATHER["parameters"]).encode()
    assert tools[0] == ToolDefinition("get_weather", parameters=msgspec.Raw(schema), strict=True)
    assert (tools[1].name, tools[1].description, tools[1].freeform) == (
        "apply_patch",
        "Edit files.",
        True,
    )
    assert tools[1].parameters is not None
    assert json.loads(bytes(tools[1].parameters))["required"] == ["input"]
    assert len(tools) == 2


def test_a_custom_tools_grammar_is_added_to_its_description() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: patch"}
    (tool,) = prompt(tools=[PATCH | {"format": grammar}]).tools
    assert tool.description == (
        "Edit files.\n\nThe input must follow this lark grammar:\nstart: patch"
    )


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ("required", CanonicalToolChoice("required")),
        ("none", CanonicalToolChoice("none")),
        ("whatever", CanonicalToolChoice("auto")),
        ({"type": "function", "name": "get_weather"}, CanonicalToolChoice("named", "get_weather")),
        ({"type": "custom", "name": "apply_patch"}, CanonicalToolChoice("named", "apply_patch")),
        ({"type": "web_search"}, CanonicalToolChoice("auto")),
        (
            {"type": "allowed_tools", "mode": "required", "tools": []},
            CanonicalToolChoice("required"),
        ),
        (None, None),
    ],
)
def test_each_tool_choice_is_parsed(given: Any, choice: CanonicalToolChoice | None) -> None:
    assert prompt(tools=[WEATHER, PATCH], tool_choice=given).tool_choice == choice


def test_without_tools_tool_parameters_are_left_out() -> None:
    told = prompt(tools=[{"type": "web_search"}], tool_choice="required", parallel_tool_calls=False)
    assert (told.tools, told.tool_choice, told.parallel_tool_calls) == ((), None, None)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ({"format": {"type": "text"}}, None),
        ({"format": {"type": "json_object"}}, JsonOutput()),
        (
            {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}},
            JsonOutput(msgspec.Raw(b"{}"), "n", None, strict=True),
        ),
    ],
)
def test_each_output_format_is_parsed(text: Any, output: JsonOutput | None) -> None:
    assert prompt(text=text | {"verbosity": "low"}).output == output
    assert prompt(text=text | {"verbosity": "low"}).verbosity == "low"


def test_the_parameters_are_parsed() -> None:
    told = prompt(
        max_output_tokens=9,
        stop="end",
        reasoning={"effort": "low", "summary": "auto", "max_tokens": 5, "enabled": True},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        user="u",
        metadata={"a": "b"},
        temperature=0.5,
        top_k=4,
        presence_penalty=0.1,
        prompt_cache_key="k",
        service_tier=None,
    )
    assert (told.max_tokens, told.stop, told.user) == (9, ("end",), "u")
    assert told.thinking == ThinkingOptions("low", 5, enabled=True, summary="auto")
    assert (told.logprobs, told.top_logprobs) == (True, 2)
    assert told.metadata == msgspec.Raw(b'{"a": "b"}')
    assert {name: json.loads(bytes(value)) for name, value in told.sampling.items()} == {
        "temperature": 0.5,
        "top_k": 4,
        "presence_penalty": 0.1,
        "prompt_cache_key": "k",
    }


def test_an_empty_reasoning_object_requests_nothing() -> None:
    assert prompt(reasoning={"effort": None}).thinking is None


# Invalid requests


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"input": [5]}, "input[0]"),
        ({"input": [{"role": "robot", "content": ""}]}, "input[0].role"),
        ({"input": [{"content": "a"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0]"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        ({"input": [CALL, CALL | {"arguments": {}}]}, "input[1].arguments"),
        ({"input": [OUTPUT | {"output": 5}]}, "input[0].output"),
        ({"input": [OUTPUT | {"output": [{"type": "input_text"}]}]}, "input[0].output[0]"),
        ({"input": [{"type": "reasoning", "summary": "x"}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "summary": [{"text": 5}]}]}, "input[0].summary[0].text"),
        ({"input": [{"role": "user", "content": [5]}]}, "input[0].content[0]"),
        ({"input": [user({"type": "input_video"})]}, "input[0].content[0].type"),
        (
            {"input": [user({"type": "input_image", "file_id": "file-1"})]},
            "input[0].content[0].image_url",
        ),
        (
            {"input": [user({"type": "input_file", "file_id": "file-1"})]},
            "input[0].content[0].file_data",
        ),
        (
            {"input": [user({"type": "input_audio", "input_audio": {"data": 1}})]},
            "input[0].content[0].input_audio.data",
        ),
        (
            {
                "input": [
                    {
                        "role": "system",
                        "content": [{"type": "input_image", "image_url": "https://x"}],
                    }
                ]
            },
            "input[0].content",
        ),
        ({"instructions": 5}, "instructions"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [WEATHER, WEATHER | {"parameters": []}]}, "tools[1].parameters"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "schema": 5}}}, "text.format.schema"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_output_tokens": "many"}, "max_output_tokens"),
        ({"stop": [5]}, "stop[0]"),
        ({"metadata": {"a": 5}}, "metadata{}"),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as raised:
        prompt(**fields)
    assert raised.value.message.startswith(f"{path}: ")


_hostile = st.sampled_from([None, True, 5, -1.5, "text", [], [5], {}, {"type": 5}, [{"type": []}]])


@settings(max_examples=150)
@given(
    st.sampled_from(
        [
            *("input", "instructions", "tools", "tool_choice", "text", "reasoning", "include"),
            *("stop", "metadata", "user", "top_logprobs", "temperature", "parallel_tool_calls"),
        ]
    ),
    _hostile,
    st.sampled_from([WEATHER, CALL, OUTPUT, ASSISTANT, {"type": "reasoning"}]),
    st.sampled_from(["type", "role", "content", "arguments", "output", "summary", "parameters"]),
)
def test_any_input_is_parsed_or_rejected_with_a_path(
    name: str, value: Any, item: dict[str, Any], inner: str
) -> None:
    for fields in ({name: value}, {"input": [item | {inner: value}]}, {"tools": [{inner: value}]}):
        try:
            told = prompt(**fields)
        except Invalid as error:
            assert error.message.startswith((name, "input", "tools"))  # noqa: PT017
        else:
            assert told.turns is not None


@pytest.mark.parametrize(
    "nested",
    [
        b'{"type":"message","role":"user","content":%s}',
        b'{"type":"function_call_output","call_id":"c","output":%s}',
        b"%s",
    ],
)
def test_deep_nesting_is_rejected(nested: bytes) -> None:
    depth = 100_000
    inner = nested % (b"[" * depth + b"]" * depth)
    with pytest.raises(Invalid, match="nested too deeply"):
        deep(inner)


def deep(item: bytes) -> CanonicalRequest:
    body = b'{"model":"m","input":[' + item + b"]}"
    return RESPONSES_CLIENT.parse_request(parse_request(body))
