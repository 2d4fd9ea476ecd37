"""Rendering canonical requests as messages requests."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.inference.formats.messages.samples import ENDPOINT
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
)
from tollhouse.inference.formats.messages.provider_request import MESSAGES_PROVIDER
from tollhouse.inference.formats.wire import raw
from tollhouse.inference.types import Endpoint, Profile
from tollhouse.kernel.errors import Invalid

HELLO = Turn("user", (TextBlock("hello"),))
OLD = replace(ENDPOINT, model="claude-sonnet-4-5-20250929")
MARK = raw({"type": "ephemeral"})
LOOK = ToolDefinition("look")


def asked(
    *turns: Turn, endpoint: Endpoint = ENDPOINT, sampling: Mapping[str, Any] = {}, **fields: Any
) -> dict[str, Any]:
    given = {name: raw(value) for name, value in sampling.items()}
    prompt = CanonicalRequest(turns or (HELLO,), sampling=given, **fields)
    return json.loads(MESSAGES_PROVIDER.render_request(prompt, endpoint))


def user(*blocks: Block) -> Turn:
    return Turn("user", blocks)


def assistant(*blocks: Block) -> Turn:
    return Turn("assistant", blocks)


def content(*blocks: Block, role: Any = "user") -> list[dict[str, Any]]:
    messages = asked(Turn(role, blocks))["messages"]
    return messages[-1]["content"] if messages else []


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# The conversation


def test_a_minimal_request_has_only_required_fields() -> None:
    assert asked() == {
        "model": "claude-sonnet-4-6",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": [text("hello")]}],
    }


def test_system_turns_are_collected_in_order_with_cache_control() -> None:
    got = asked(
        Turn("system", (TextBlock("a", cache=MARK),)),
        HELLO,
        Turn("system", (TextBlock("b"), RefusalBlock("c"))),
    )
    marked = text("a") | {"cache_control": {"type": "ephemeral"}}
    assert got["system"] == [marked, text("b"), text("c")]
    assert [message["role"] for message in got["messages"]] == ["user"]


def test_system_text_alone_becomes_a_user_message() -> None:
    got = asked(Turn("system", (TextBlock("a"),)))
    assert got["messages"] == [{"role": "user", "content": [text("a")]}]
    assert "system" not in got


def test_consecutive_turns_of_one_role_are_merged() -> None:
    got = asked(
        user(TextBlock("a")), user(TextBlock("b")), assistant(TextBlock("c")), user(TextBlock("d"))
    )
    assert got["messages"] == [
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": [text("c")]},
        {"role": "user", "content": [text("d")]},
    ]


def test_turns_around_an_empty_one_are_merged() -> None:
    got = asked(user(TextBlock("a")), assistant(TextBlock(" ")), user(TextBlock("b")))["messages"]
    assert got == [{"role": "user", "content": [text("a"), text("b")]}]


@pytest.mark.parametrize("empty", ["", " \n"])
def test_an_empty_text_is_left_out(empty: str) -> None:
    assert content(TextBlock(empty), TextBlock("a")) == [text("a")]


def test_tool_results_come_first() -> None:
    got = asked(user(TextBlock("a")), user(ToolResult("t", (TextBlock("r"),), is_error=True)))[
        "messages"
    ]
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("r")], "is_error": True}
    assert got[0]["content"] == [result, text("a")]


def test_a_prefill_has_no_trailing_space() -> None:
    got = asked(HELLO, assistant(TextBlock("a "), TextBlock("It is \n")))["messages"]
    assert got[-1]["content"] == [text("a "), text("It is")]
    got = asked(HELLO, assistant(TextBlock("It is ")), user(TextBlock("b ")))["messages"]
    assert [message["content"] for message in got[1:]] == [[text("It is ")], [text("b ")]]


def test_calls_have_object_arguments_and_valid_ids() -> None:
    got = asked(
        assistant(ToolCall("functions.look:0", "look", '{"a": 1}'), ToolCall("b", "type", "free")),
        user(ToolResult("functions.look:0", ())),
    )["messages"]
    assert [call["input"] for call in got[1]["content"]] == [{"a": 1}, {"input": "free"}]
    assert got[1]["content"][0]["id"] == "functions_look_0"
    assert got[2]["content"] == [{"type": "tool_result", "tool_use_id": "functions_look_0"}]


@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://a.example/b.png", {"type": "url", "url": "https://a.example/b.png"}),
        (
            "data:image/PNG;base64,AAAA",
            {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        ),
        (
            "data:image/png;name=a;base64,AAAA",
            {"type": "base64", "media_type": "image/png", "data": "AAAA"},
        ),
    ],
)
def test_images_and_files_have_sources(url: str, source: dict[str, str]) -> None:
    marked = {"cache_control": {"type": "ephemeral"}}
    image, document = content(
        ImageBlock(url, detail="low", cache=MARK), DocumentBlock(url=url, name="n")
    )
    assert image == {"type": "image", "source": source, **marked}
    assert document == {"type": "document", "source": source, "title": "n"}


def test_a_text_document_becomes_a_text_source() -> None:
    url = "data:text/markdown;base64," + b64encode("ä".encode()).decode()
    plain = {"type": "text", "media_type": "text/plain", "data": "ä"}
    for document in (DocumentBlock(text="ä"), DocumentBlock(url=url)):
        assert content(document) == [{"type": "document", "source": plain}]


def test_only_reasoning_that_the_provider_can_verify_is_sent() -> None:
    got = content(
        ReasoningBlock(text="a", signature="s", format=ANTHROPIC),
        ReasoningBlock(signature="s", format=ANTHROPIC),
        ReasoningBlock(encrypted="e", format=ANTHROPIC),
        ReasoningBlock(text="a", format=ANTHROPIC),
        ReasoningBlock(text="a", encrypted="e", format=ANTHROPIC),
        ReasoningBlock(text="a", signature="s"),
        ReasoningBlock(encrypted="e", format=OPENAI),
        TextBlock("b"),
        role="assistant",
    )
    assert got == [
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "thinking", "thinking": "", "signature": "s"},
        {"type": "redacted_thinking", "data": "e"},
        text("b"),
    ]


def test_a_refusal_becomes_text_and_a_generated_image_is_left_out() -> None:
    image = ImageBlock("https://a.example")
    assert content(RefusalBlock("No."), image, AudioBlock("AAAA", "wav"), role="assistant") == [
        text("No.")
    ]


@pytest.mark.parametrize(
    "turn",
    [
        user(AudioBlock("AAAA", "wav")),
        user(ImageBlock("data:image/svg+xml,<svg/>")),
        user(DocumentBlock(url="data:text/plain;base64,/w==")),
        Turn("system", (ImageBlock("https://a.example"),)),
    ],
)
def test_user_content_is_not_dropped_silently(turn: Turn) -> None:
    with pytest.raises(Invalid):
        asked(turn)


# Parameters


def test_parameters_are_renamed_for_the_dialect() -> None:
    got = asked(
        stream=True,
        max_tokens=50,
        stop=("a", "\n", ""),
        user="u",
        verbosity="low",
        choices=3,
        metadata=raw({"a": "b"}),
        sampling={"top_k": 5, "seed": 1, "top_p": 0.5, "service_tier": "default"},
    )
    del got["messages"], got["model"]
    assert got == {
        "max_tokens": 50,
        "stop_sequences": ["a"],
        "metadata": {"user_id": "u"},
        "stream": True,
        "top_k": 5,
        "top_p": 0.5,
        "service_tier": "standard_only",
    }


def test_the_output_limit_defaults_to_the_models() -> None:
    assert asked(endpoint=replace(ENDPOINT, max_completion_tokens=64000))["max_tokens"] == 64000


@pytest.mark.parametrize(("given", "sent"), [(1.7, 1.0), (-1, 0.0), (0, 0.0), (0.3, 0.3)])
def test_a_temperature_is_clamped(given: float, sent: float) -> None:
    assert asked(sampling={"temperature": given})["temperature"] == sent


def test_top_p_is_dropped_beside_a_temperature() -> None:
    got = asked(sampling={"temperature": 0.5, "top_p": 0.9})
    assert "top_p" not in got


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-5", "claude-opus-latest"])
def test_newer_models_get_no_sampling_parameters(model: str) -> None:
    got = asked(
        endpoint=replace(ENDPOINT, model=model),
        sampling={"temperature": 0.5, "top_p": 0.9, "top_k": 5, "service_tier": "auto"},
    )
    assert set(got) == {"model", "max_tokens", "messages", "service_tier"}


def test_other_vendors_models_get_sampling_parameters() -> None:
    endpoint = replace(ENDPOINT, model="kimi-k3")
    assert asked(endpoint=endpoint, sampling={"temperature": 0.5})["temperature"] == 0.5


@pytest.mark.parametrize("name", ["temperature", "top_p", "service_tier"])
@pytest.mark.parametrize("value", ["x", [1]])
def test_an_invalid_parameter_is_left_out(name: str, value: Any) -> None:
    assert name not in asked(sampling={name: value})


def test_rejected_parameters_are_left_out() -> None:
    endpoint = replace(ENDPOINT, profile=Profile(refuses=frozenset({"metadata", "top_k"})))
    got = asked(endpoint=endpoint, user="u", sampling={"top_k": 5})
    assert set(got) == {"model", "max_tokens", "messages"}


def test_tools_have_input_schemas() -> None:
    schema = {"properties": {"a": {}}, "required": ["a"]}
    got = asked(
        tools=(
            ToolDefinition("a", "d", raw(schema), strict=True, cache=MARK),
            ToolDefinition("b", strict=False),
            ToolDefinition("c", freeform=True),
            ToolDefinition("d", parameters=raw([])),
        )
    )["tools"]
    assert got[0] == {
        "name": "a",
        "description": "d",
        "strict": True,
        "cache_control": {"type": "ephemeral"},
        "input_schema": {"type": "object", **schema},
    }
    nothing = {"type": "object", "properties": {}}
    assert got[1] == {"name": "b", "input_schema": nothing}
    assert got[2]["input_schema"]["required"] == ["input"]
    assert got[3]["input_schema"] == nothing


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (CanonicalToolChoice("required"), None, {"type": "any"}),
        (CanonicalToolChoice("none"), False, {"type": "none"}),
        (
            CanonicalToolChoice("named", "look"),
            False,
            {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_the_tool_choice_is_rendered(
    choice: CanonicalToolChoice | None, parallel: Any, sent: Any
) -> None:
    got = asked(tools=(LOOK,), tool_choice=choice, parallel_tool_calls=parallel)
    assert got.get("tool_choice") == sent


def test_without_tools_there_is_no_tool_choice() -> None:
    assert "tool_choice" not in asked(
        tool_choice=CanonicalToolChoice("none"), parallel_tool_calls=False
    )


def test_a_json_schema_is_rendered() -> None:
    got = asked(output=JsonOutput(raw({"a": 1}), name="n"))
    assert got["output_config"] == {"format": {"type": "json_schema", "schema": {"a": 1}}}
    any_object = asked(output=JsonOutput())
    assert "output_config" not in any_object
    (told,) = any_object["system"]
    assert "JSON object" in told["text"]


# Thinking


@pytest.mark.parametrize(
    ("thinking", "sent"),
    [
        (ThinkingOptions(effort="minimal"), "low"),
        (ThinkingOptions(effort="high"), "high"),
        (ThinkingOptions(effort="xhigh"), "xhigh"),
        (ThinkingOptions(effort="max"), "max"),
        (ThinkingOptions(enabled=True), None),
        (ThinkingOptions(budget_tokens=2000), None),
    ],
)
def test_newer_models_think_adaptively(thinking: ThinkingOptions, sent: str | None) -> None:
    got = asked(thinking=thinking)
    assert got["thinking"] == {"type": "adaptive"}
    assert got.get("output_config") == (sent and {"effort": sent})
    assert got["max_tokens"] == 4096


def test_a_reasoning_summary_can_be_requested() -> None:
    got = asked(thinking=ThinkingOptions(enabled=True, summary="detailed"))
    assert got["thinking"] == {"type": "adaptive", "display": "summarized"}


@pytest.mark.parametrize(
    ("thinking", "max_tokens", "budget", "limit"),
    [
        (ThinkingOptions(budget_tokens=5000), 8000, 5000, 8000),
        (ThinkingOptions(budget_tokens=5), 8000, 1024, 8000),
        (ThinkingOptions(effort="minimal"), 20_000, 2000, 20_000),
        (ThinkingOptions(effort="low"), 20_000, 4000, 20_000),
        (ThinkingOptions(effort="medium"), 20_000, 10_000, 20_000),
        (ThinkingOptions(effort="high"), 20_000, 16_000, 20_000),
        (ThinkingOptions(effort="max"), 20_000, 19_000, 20_000),
        (ThinkingOptions(enabled=True), 20_000, 10_000, 20_000),
        (ThinkingOptions(effort="low"), 500, 1024, 1524),
        (ThinkingOptions(budget_tokens=9000), 8000, 9000, 17_000),
        (ThinkingOptions(budget_tokens=40_000), 8000, 31_999, 32_000),
    ],
)
def test_older_models_get_a_thinking_budget(
    thinking: ThinkingOptions, max_tokens: int, budget: int, limit: int
) -> None:
    endpoint = replace(OLD, max_completion_tokens=32_000)
    got = asked(endpoint=endpoint, thinking=thinking, max_tokens=max_tokens)
    assert got["thinking"] == {"type": "enabled", "budget_tokens": budget}
    assert got["max_tokens"] == limit
    assert "output_config" not in got


def test_an_output_limit_within_the_budget_is_raised() -> None:
    got = asked(endpoint=OLD, thinking=ThinkingOptions(budget_tokens=40_000), max_tokens=8000)
    assert (got["thinking"]["budget_tokens"], got["max_tokens"]) == (40_000, 48_000)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("claude-3-7-sonnet-20250219", "enabled"),
        ("claude-sonnet-4-20250514", "enabled"),
        ("claude-opus-4-0", "enabled"),
        ("claude-opus-4-1-20250805", "enabled"),
        ("claude-haiku-4-5", "enabled"),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", "enabled"),
        ("claude-sonnet-4@20250514", "enabled"),
        ("claude-opus-4-6", "adaptive"),
        ("claude-opus-4-10", "adaptive"),
        ("claude-sonnet-5-20270101", "adaptive"),
        ("deepseek-chat", "adaptive"),
    ],
)
def test_model_traits_are_derived_from_the_name(model: str, kind: str) -> None:
    got = asked(endpoint=replace(ENDPOINT, model=model), thinking=ThinkingOptions(effort="low"))
    assert got["thinking"]["type"] == kind


@pytest.mark.parametrize(
    "thinking",
    [
        None,
        ThinkingOptions(),
        ThinkingOptions(effort="none", enabled=True),
        ThinkingOptions("high", enabled=False),
    ],
)
def test_disabled_thinking_is_left_out(thinking: ThinkingOptions | None) -> None:
    assert not {"thinking", "output_config"} & set(asked(thinking=thinking))


@pytest.mark.parametrize("mode", ["required", "named"])
def test_a_forced_tool_disables_thinking(mode: Any) -> None:
    choice = CanonicalToolChoice(mode, "look" if mode == "named" else None)
    got = asked(thinking=ThinkingOptions(effort="high"), tools=(LOOK,), tool_choice=choice)
    assert "thinking" not in got
    assert "thinking" in asked(thinking=ThinkingOptions(effort="high"), tool_choice=choice)


def test_a_prefill_disables_thinking() -> None:
    got = asked(HELLO, assistant(TextBlock("It")), thinking=ThinkingOptions(effort="high"))
    assert "thinking" not in got


@pytest.mark.parametrize(("top_p", "sent"), [(0.9, None), (0.95, 0.95), (1, 1)])
def test_with_thinking_only_a_high_top_p_is_sent(top_p: float, sent: Any) -> None:
    sampling = {"temperature": 0.5, "top_k": 5, "top_p": top_p}
    got = asked(endpoint=OLD, thinking=ThinkingOptions(effort="low"), sampling=sampling)
    assert not {"temperature", "top_k"} & set(got)
    assert got.get("top_p") == sent


def test_a_request_is_single_line_json() -> None:
    body = MESSAGES_PROVIDER.render_request(CanonicalRequest((HELLO,)), ENDPOINT)
    assert msgspec.json.decode(body)["model"] == "claude-sonnet-4-6"


def test_a_user_message_precedes_an_initial_assistant_message() -> None:
    first, second = asked(assistant(TextBlock("Welcome.")), user(TextBlock("Hi.")))["messages"][:2]
    assert (first["role"], second["role"]) == ("user", "assistant")
