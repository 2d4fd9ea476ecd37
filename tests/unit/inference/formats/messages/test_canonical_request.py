"""Conversion of messages requests to canonical requests."""

import json
import re
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inference.formats.messages.samples import request
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    OPENAI,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolResult,
    pack,
)
from tollhouse.inference.formats.messages.client_response import MESSAGES_CLIENT
from tollhouse.inference.formats.messages.wire import parse_request
from tollhouse.kernel.errors import Invalid

TOOL = {"name": "look", "input_schema": {"type": "object"}}
NOT_OURS = "a file that lies with a provider cannot be put to another."
TEXT_ONLY = "only text can be put to this model here."
FOREIGN = ReasoningBlock(text="Hm.", is_summary=True, encrypted="e", id="rs_1", format=OPENAI)


def prompt(**fields: Any) -> CanonicalRequest:
    return MESSAGES_CLIENT.parse_request(request(**fields))


def blocks(*content: Any, role: str = "user") -> tuple[Block, ...]:
    turns = prompt(messages=[{"role": role, "content": list(content)}]).turns
    return turns[0].blocks if turns else ()


def refusal(**fields: Any) -> str:
    with pytest.raises(Invalid) as caught:
        prompt(**fields)
    return caught.value.message


def refused(*content: Any, role: str = "user") -> str:
    return refusal(messages=[{"role": role, "content": list(content)}])


def source(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


# Turns


def test_system_text_becomes_the_first_turn() -> None:
    got = prompt(system="Be brief.", messages=[{"role": "user", "content": "hello"}])
    assert [turn.role for turn in got.turns] == ["system", "user"]
    assert [turn.blocks for turn in got.turns] == [(TextBlock("Be brief."),), (TextBlock("hello"),)]


def test_system_blocks_keep_their_cache_control() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    system = [{"type": "text", "text": "a", "cache_control": mark}, {"type": "text", "text": "b"}]
    first, second = prompt(system=system).turns[0].blocks
    assert isinstance(first, TextBlock)
    assert isinstance(second, TextBlock)
    assert first.cache is not None
    assert json.loads(bytes(first.cache)) == mark
    assert second.cache is None


@pytest.mark.parametrize("empty", ["", []])
def test_an_empty_turn_is_left_out(empty: Any) -> None:
    assert prompt(system=empty, messages=[{"role": "user", "content": empty}]).turns == ()


def test_tool_results_come_first_in_their_turn() -> None:
    text = {"type": "text", "text": "and"}
    results = [{"type": "tool_result", "tool_use_id": name, "content": "x"} for name in "ab"]
    got = blocks(text, *results)
    assert got == (
        ToolResult("a", (TextBlock("x"),)),
        ToolResult("b", (TextBlock("x"),)),
        TextBlock("and"),
    )


@pytest.mark.parametrize(
    ("given_source", "url"),
    [
        (source("url", url="https://a.example/b.png"), "https://a.example/b.png"),
        (source("base64", media_type="image/png", data="AAAA"), "data:image/png;base64,AAAA"),
    ],
)
def test_images_and_files_become_urls(given_source: Any, url: str) -> None:
    assert blocks({"type": "image", "source": given_source}) == (ImageBlock(url),)
    document = {"type": "document", "source": given_source, "title": "a"}
    assert blocks(document) == (DocumentBlock(url=url, name="a"),)


@pytest.mark.parametrize(
    "given_source",
    [
        source("text", media_type="text/plain", data="a\nb"),
        source("content", content="a\nb"),
        source("content", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
    ],
)
def test_text_blocks_of_a_document_are_joined(given_source: Any) -> None:
    assert blocks({"type": "document", "source": given_source}) == (DocumentBlock(text="a\nb"),)


def test_a_search_result_becomes_a_document() -> None:
    given_block = {
        "type": "search_result",
        "source": "https://a.example",
        "title": "A",
        "content": [{"type": "text", "text": "a"}],
    }
    assert blocks(given_block) == (DocumentBlock(text="a", name="A"),)


def test_a_call_keeps_its_arguments_as_text() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": [1.50]}}
    assert blocks(call, role="assistant") == (ToolCall("t1", "look", '{"a":[1.5]}'),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", (TextBlock("a"),)),
        (None, ()),
        ([], ()),
        ([{"type": "text", "text": "a"}, {"type": "tool_reference"}], (TextBlock("a"),)),
        (
            [{"type": "image", "source": source("url", url="https://a.example")}],
            (ImageBlock("https://a.example"),),
        ),
    ],
)
def test_a_result_is_text_or_blocks(content: Any, expected: Any) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": content, "is_error": True}
    assert blocks(result) == (ToolResult("t1", expected, is_error=True),)


def test_native_reasoning_is_anthropics() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    redacted = {"type": "redacted_thinking", "data": "c2VjcmV0"}
    assert blocks(thinking, redacted, role="assistant") == (
        ReasoningBlock(text="Hm.", signature="c2ln", format=ANTHROPIC),
        ReasoningBlock(encrypted="c2VjcmV0", format=ANTHROPIC),
    )


def test_packed_reasoning_is_unpacked() -> None:
    thinking = {"type": "thinking", "thinking": "changed", "signature": pack(FOREIGN)}
    redacted = {"type": "redacted_thinking", "data": pack(FOREIGN)}
    assert blocks(thinking, redacted, role="assistant") == (FOREIGN, FOREIGN)


def test_a_signature_that_only_looks_packed_is_native() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    for packed in ("th1.???", "th1." + urlsafe_b64encode(deep).decode()):
        (block,) = blocks({"type": "redacted_thinking", "data": packed}, role="assistant")
        assert block == ReasoningBlock(encrypted=packed, format=ANTHROPIC)


def test_blocks_of_the_providers_own_tools_are_skipped() -> None:
    server = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": {"type": "e"}}
    text = {"type": "text", "text": "Found.", "citations": [{"type": "x"}]}
    assert blocks(server, result, text, role="assistant") == (TextBlock("Found."),)


# Parameters


def test_only_client_tools_are_kept() -> None:
    server = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    full = TOOL | {"description": "d", "strict": True, "cache_control": {"type": "ephemeral"}}
    (tool,) = prompt(tools=[server, full, {"type": "mcp_toolset", "mcp_server_name": "m"}]).tools
    assert (tool.name, tool.description, tool.strict) == ("look", "d", True)
    assert tool.parameters is not None
    assert json.loads(bytes(tool.parameters)) == {"type": "object"}
    assert tool.cache is not None


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, CanonicalToolChoice("auto")),
        ({"type": "any"}, CanonicalToolChoice("required")),
        ({"type": "none"}, CanonicalToolChoice("none")),
        ({"type": "tool", "name": "look"}, CanonicalToolChoice("named", "look")),
        ({"type": "tool", "name": "gone"}, None),
        (None, None),
    ],
)
def test_the_choice_of_a_tool_is_kept(choice: Any, expected: CanonicalToolChoice | None) -> None:
    assert prompt(tools=[TOOL], tool_choice=choice).tool_choice == expected


def test_a_tool_choice_without_tools_is_left_out() -> None:
    assert prompt(tool_choice={"type": "any"}).tool_choice is None


def test_parallel_calls_can_be_disabled() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert prompt(tools=[TOOL], tool_choice=choice).parallel_tool_calls is False
    assert prompt(tools=[TOOL]).parallel_tool_calls is None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            ThinkingOptions(budget_tokens=2048, enabled=True),
        ),
        ({"thinking": {"type": "adaptive"}}, ThinkingOptions(enabled=True)),
        ({"thinking": {"type": "disabled"}}, ThinkingOptions(enabled=False)),
        ({"output_config": {"effort": "low"}}, ThinkingOptions(effort="low")),
        (
            {
                "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "max", "task_budget": {}},
            },
            ThinkingOptions(effort="max", enabled=True, summary="auto"),
        ),
    ],
)
def test_thinking_options_are_parsed(fields: Any, expected: ThinkingOptions | None) -> None:
    assert prompt(**fields).thinking == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
        {"output_format": {"type": "json_schema", "schema": {"a": 1}}},
    ],
)
def test_a_json_schema_is_parsed(fields: Any) -> None:
    output = prompt(**fields).output
    assert output is not None
    assert output.schema is not None
    assert json.loads(bytes(output.schema)) == {"a": 1}


def test_an_unknown_output_format_is_ignored() -> None:
    assert prompt(output_config={"format": {"type": "new"}}).output is None


def test_the_other_parameters_are_kept() -> None:
    got = prompt(
        stream=True,
        max_tokens=9,
        stop_sequences=["a", "b"],
        metadata={"user_id": "u"},
        temperature=0.5,
        top_p=1,
        top_k=None,
        service_tier="standard_only",
        unheard_of=[1],
    )
    assert (got.stream, got.max_tokens, got.stop, got.user) == (True, 9, ("a", "b"), "u")
    sampling = {name: json.loads(bytes(value)) for name, value in got.sampling.items()}
    assert sampling == {"temperature": 0.5, "top_p": 1, "service_tier": "default"}


# Invalid requests


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({}, "messages[0].content[0]: Object missing required field `type`."),
        (5, "messages[0].content[0]: Expected `object`, got `int`."),
        ({"type": 5}, "messages[0].content[0].type: Expected `str`, got `int`."),
        ({"type": "text"}, "messages[0].content[0]: Object missing required field `text`."),
        ({"type": "text", "text": 5}, "messages[0].content[0].text: Expected `str`, got `int`."),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": 5}]},
            "messages[0].content[0].content[0].text: Expected `str`, got `int`.",
        ),
        (
            {"type": "tool_use", "id": "a", "name": "b", "input": []},
            "messages[0].content[0].input: Expected `object`, got `array`.",
        ),
        (
            {"type": "image", "source": source("file", file_id="f")},
            f"messages[0].content[0].source.type: {NOT_OURS}",
        ),
        (
            {"type": "document", "source": source("file", file_id="f")},
            f"messages[0].content[0].source.type: {NOT_OURS}",
        ),
        (
            {"type": "container_upload", "file_id": "f"},
            "messages[0].content[0].type: a block of this kind cannot be put to this model.",
        ),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "thinking"}]},
            "messages[0].content[0].content[0]: Object missing required field `thinking`.",
        ),
        (
            {
                "type": "tool_result",
                "tool_use_id": "a",
                "content": [{"type": "redacted_thinking", "data": "d"}],
            },
            "messages[0].content[0].content: must be of text, images and documents.",
        ),
        (
            {
                "type": "document",
                "source": source(
                    "content",
                    content=[{"type": "image", "source": source("url", url="https://a.example")}],
                ),
            },
            f"messages[0].content[0].source.content[0].type: {TEXT_ONLY}",
        ),
    ],
)
def test_an_invalid_block_is_named_by_its_path(block: Any, message: str) -> None:
    assert refused(block) == message


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [5]}, "messages[0]: "),
        ({"messages": [{"role": "user"}]}, "messages[0]: "),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role: "),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content: "),
        ({"system": 5}, "system: "),
        ({"system": [5]}, "system[0]: "),
        ({"tools": {}}, "tools: "),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name: "),
        ({"tools": [TOOL | {"input_schema": 5}]}, "tools[0].input_schema: "),
        ({"tools": [TOOL], "tool_choice": {"type": "all"}}, "tool_choice.type: "),
        ({"tools": [TOOL], "tool_choice": {"type": "tool"}}, "tool_choice.name: "),
        ({"thinking": "yes"}, "thinking: "),
        ({"thinking": {"type": "enabled", "budget_tokens": "a"}}, "thinking.budget_tokens: "),
        ({"output_config": {"effort": 5}}, "output_config.effort: "),
        ({"stop_sequences": "a"}, "stop_sequences: "),
        ({"stop_sequences": [5]}, "stop_sequences[0]: "),
        ({"metadata": []}, "metadata: "),
        ({"temperature": "hot"}, "temperature: "),
        ({"top_k": 1.5}, "top_k: "),
    ],
)
def test_an_invalid_field_is_named_by_its_path(fields: dict[str, Any], path: str) -> None:
    assert refusal(**fields).startswith(path)


@pytest.mark.parametrize("broken", [rb'"\ud800"', b"[" * 100_000, b"[" * 1000 + b"]" * 1000])
def test_invalid_json_anywhere_is_rejected(broken: bytes) -> None:
    body = b'{"model":"a","messages":[{"role":"user","content":[{"type":"new","a":%s}]}]}' % broken
    with pytest.raises(Invalid):
        MESSAGES_CLIENT.parse_request(parse_request(body))


def refused_field(body: dict[str, Any]) -> str | None:
    """Return the top-level field at the start of an error's path."""
    parsed = parse_request(json.dumps(body).encode())
    try:
        MESSAGES_CLIENT.parse_request(parsed)
    except Invalid as error:
        return re.split(r"[.\[:]", error.message)[0]
    return None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "source", "content", "data", "input", "name", "id"]),
            each | st.sampled_from(["text", "image", "tool_use", "document", "thinking"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["system", "tools", "tool_choice", "thinking", "output_config", "x"]),
        json_values,
    ),
    st.lists(
        json_values | st.fixed_dictionaries({"role": st.just("user"), "content": json_values})
    ),
)
def test_any_json_is_parsed_or_rejected_with_a_path(fields: Any, messages: list[Any]) -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": "a"}, *messages], **fields}
    assert refused_field(body) in {None, *body}
