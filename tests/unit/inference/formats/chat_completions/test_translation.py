"""Conversion between the chat format and the canonical form, and round trips."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given

from tests.support.stream_checks.chat import check_stream
from tests.unit.inference.formats.canonical.response_fixtures import USED, events_of, replies
from tollhouse.accounting.types import FREE, Charge, Cost, CostState
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.stream import ResponseBuilder
from tollhouse.inference.formats.canonical.translation import TranslationSource
from tollhouse.inference.formats.canonical.types import (
    AudioBlock,
    Block,
    CanonicalEvent,
    CanonicalRequest,
    CanonicalResponse,
    CanonicalToolChoice,
    Choice,
    ChoiceFinished,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    TextBlock,
    TextDelta,
    ThinkingOptions,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.chat_completions.client import CHAT_CLIENT
from tollhouse.inference.formats.chat_completions.provider import CHAT_PROVIDER
from tollhouse.inference.formats.chat_completions.wire import parse_request
from tollhouse.inference.sse import EventParser
from tollhouse.inference.types import Endpoint, Profile, ReplyIdentity
from tollhouse.kernel.errors import Bug, Invalid, ProviderUnavailable

IDENTITY = ReplyIdentity("gen-1", "acme/large", "Acme", 1)
CHARGE = Charge(CostState.EXACT, USED, 9, 9, Cost(9, 4, 5))
ENDPOINT = Endpoint("acme", "large-2026", FREE)
PROVIDER_FORMAT = CHAT_PROVIDER
PNG = "data:image/png;base64,AAAA"


def source(**fields: Any) -> TranslationSource:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    return TranslationSource(parse_request(json.dumps(body).encode()), CHAT_CLIENT)


def parsed(*messages: dict[str, Any], **fields: Any) -> CanonicalRequest:
    return source(messages=list(messages), **fields).prompt


def asked(*turns: Turn, endpoint: Endpoint = ENDPOINT, **fields: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(
        PROVIDER_FORMAT.render_request(CanonicalRequest(turns, **fields), endpoint)
    )
    return body


def essence(reply: CanonicalResponse) -> list[tuple[object, ...]]:
    """Return what the chat format keeps of each choice: text is joined, reasoning comes first."""
    return [
        (
            "".join(each.text for each in choice.blocks if isinstance(each, TextBlock)),
            "".join(each.text for each in choice.blocks if isinstance(each, RefusalBlock)),
            [each for each in choice.blocks if isinstance(each, ReasoningBlock)],
            [each for each in choice.blocks if isinstance(each, ToolCall)],
            choice.finish_reason,
        )
        for choice in reply.choices
    ]


def apart(blocks: tuple[Block, ...]) -> bool:
    """Return whether no unsigned reasoning is followed by more; in a stream they are one block."""
    return not any(
        isinstance(first, ReasoningBlock)
        and not first.format
        and isinstance(second, ReasoningBlock)
        for first, second in pairwise(blocks)
    )


# Responses


@given(replies(most_choices=3))
def test_a_complete_response_survives_a_round_trip(reply: CanonicalResponse) -> None:
    got = PROVIDER_FORMAT.parse_response(
        CHAT_CLIENT.render_response(source(), reply, IDENTITY, CHARGE)
    )
    assert essence(got) == essence(reply)
    assert got.usage == USED


@given(replies(most_choices=3))
def test_a_stream_survives_a_round_trip(reply: CanonicalResponse) -> None:
    stream = written(events_of(reply))
    check_stream(stream)
    got = reread(stream)
    assert got.usage == USED
    for mine, theirs in zip(essence(got), essence(reply), strict=True):
        assert mine[:2] + mine[3:] == theirs[:2] + theirs[3:]
    for choice, again in zip(reply.choices, got.choices, strict=True):
        if apart(choice.blocks):
            assert (
                essence(CanonicalResponse((again,)))[0][2]
                == essence(CanonicalResponse((choice,)))[0][2]
            )


def written(events: list[CanonicalEvent]) -> bytes:
    encoder = CHAT_CLIENT.stream_encoder(source(), IDENTITY)
    return b"".join(map(encoder.write, events)) + encoder.end(CHARGE)


def reread(stream: bytes) -> CanonicalResponse:
    decoder, builder = PROVIDER_FORMAT.stream_decoder(), ResponseBuilder()
    for data in EventParser().feed(stream):
        for event in decoder.feed(data):
            builder.add(event)
    assert decoder.done
    return builder.build()


@given(replies())
def test_a_stream_that_fails_anywhere_ends_with_its_error(reply: CanonicalResponse) -> None:
    events = events_of(reply)
    for cut in range(len(events)):
        encoder = CHAT_CLIENT.stream_encoder(source(), IDENTITY)
        stream = b"".join(map(encoder.write, events[:cut]))
        stream += encoder.fail(ProviderUnavailable("Acme failed.", provider_name="Acme"))
        assert check_stream(stream).failed


@given(replies())
def test_a_response_sent_back_by_the_client_is_unchanged(reply: CanonicalResponse) -> None:
    message = json.loads(CHAT_CLIENT.render_response(source(), reply, IDENTITY, CHARGE))["choices"][
        0
    ]["message"]
    [turn] = parsed(message).turns
    again = CanonicalResponse((Choice(turn.blocks, reply.choices[0].finish_reason),))
    assert essence(again) == essence(CanonicalResponse(reply.choices))


def test_multi_line_logprobs_are_sent_on_one_line() -> None:
    spread = msgspec.Raw(b'{"content":[\n],\r\n"refusal":null}')
    chunk = CHAT_CLIENT.stream_encoder(source(), IDENTITY).write(TextDelta(0, 0, "a", spread))
    assert chunk.count(b"\n") == 2
    assert b"\r" not in chunk


def test_a_stream_cannot_be_ended_twice() -> None:
    encoder = CHAT_CLIENT.stream_encoder(source(), IDENTITY)
    encoder.end(CHARGE)
    with pytest.raises(Bug):
        encoder.fail(ProviderUnavailable("x", provider_name="Acme"))


def test_a_finished_choice_takes_no_more_output() -> None:
    encoder = CHAT_CLIENT.stream_encoder(source(), IDENTITY)
    encoder.write(ChoiceFinished(0, "stop"))
    with pytest.raises(MalformedResponse):
        encoder.write(TextDelta(0, 0, "more"))


# Provider responses


def decoded(*chunks: dict[str, Any]) -> list[CanonicalEvent]:
    decoder = PROVIDER_FORMAT.stream_decoder()
    return [event for each in chunks for event in decoder.feed(json.dumps(each).encode())][1:]


def delta(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_parsed_from_every_known_field(name: str) -> None:
    assert decoded(delta(**{name: "hm"})) == [ReasoningDelta(0, 0, "hm")]


def test_reasoning_in_two_fields_is_parsed_once() -> None:
    details = [{"type": "reasoning.text", "text": "hm", "format": None}]
    assert decoded(delta(reasoning="hm", reasoning_details=details)) == [ReasoningDelta(0, 0, "hm")]


def test_a_signature_ends_its_reasoning_block() -> None:
    first = {"type": "reasoning.text", "text": "a", "signature": "s", "format": "f"}
    second = {"type": "reasoning.text", "text": "b"}
    assert decoded(delta(reasoning_details=[first]), delta(reasoning_details=[second])) == [
        ReasoningDelta(0, 0, "a"),
        ReasoningSignature(0, 0, "s", format="f"),
        ReasoningDelta(0, 1, "b"),
    ]


def test_calls_without_an_index_are_complete_calls() -> None:
    one = {"id": "a", "function": {"name": "f", "arguments": "{}"}}
    two = {"id": "b", "function": {"name": "g", "arguments": ""}}
    assert decoded(delta(tool_calls=[one]), delta(tool_calls=[two])) == [
        ToolCallStarted(0, 0, "a", "f"),
        ToolCallDelta(0, 0, "{}"),
        ToolCallStarted(0, 1, "b", "g"),
    ]


def test_a_stop_reason_with_a_tool_call_becomes_tool_calls() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    *_, end = decoded(delta(tool_calls=[call]), delta("stop"))
    assert end == ChoiceFinished(0, "tool_calls", "stop")


def test_text_in_content_parts_is_parsed() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert decoded(delta(content=parts)) == [TextDelta(0, 0, "ab")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"choices":[]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":1}]}',
    ],
)
def test_a_body_that_is_not_a_chat_completion_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponse):
        PROVIDER_FORMAT.parse_response(body)


def test_an_error_under_a_success_status_is_the_providers() -> None:
    with pytest.raises(ErrorEvent) as caught:
        PROVIDER_FORMAT.parse_response(b'{"error":{"message":"no","code":"c"}}')
    assert (caught.value.code, caught.value.message) == ("c", "no")


# Client requests


def test_every_part_of_a_conversation_is_parsed() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA"}
    prompt = parsed(
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
                {"type": "file", "file": file},
                {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
            ],
        },
        {"role": "assistant", "content": "ok", "tool_calls": [call, {**call, "id": "d"}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "2"},
        {"role": "assistant", "content": "so"},
    )
    assert prompt.turns == (
        Turn("system", (TextBlock("be brief"),)),
        Turn(
            "user",
            (
                TextBlock("look"),
                ImageBlock(PNG, "low"),
                DocumentBlock(url=file["file_data"], name="a.pdf"),
                AudioBlock("AA", "wav"),
            ),
        ),
        Turn("assistant", (TextBlock("ok"), ToolCall("c", "f", "{}"), ToolCall("d", "f", "{}"))),
        Turn("user", (ToolResult("c", (TextBlock("1"),)), ToolResult("d", (TextBlock("2"),)))),
        Turn("assistant", (TextBlock("so"),)),
    )


def test_parameters_are_parsed() -> None:
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    prompt = source(
        max_completion_tokens=9,
        stop="END",
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        response_format={"type": "json_schema", "json_schema": schema},
        reasoning={"effort": "high"},
        n=2,
        temperature=0.5,
    ).prompt
    assert (prompt.max_tokens, prompt.stop, prompt.choices) == (9, ("END",), 2)
    assert prompt.tools[0].name == "f"
    assert prompt.tool_choice == CanonicalToolChoice("named", "f")
    assert prompt.output is not None
    assert (prompt.output.name, prompt.output.strict) == ("n", True)
    assert prompt.thinking == ThinkingOptions(effort="high")
    assert bytes(prompt.sampling["temperature"]) == b"0.5"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [{"role": "robot"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "user", "content": [{"type": "video"}]}]},
            "messages[0].content[0]",
        ),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tool_choice": "perhaps"}, "tool_choice"),
        ({"tools": [{"function": {}}]}, "tools[0].function"),
        ({"stop": 3}, "stop"),
    ],
)
def test_an_invalid_field_is_named_by_its_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(Invalid) as caught:
        CHAT_CLIENT.parse_request(source(**fields).request)
    assert caught.value.message.startswith(path)


def test_a_file_by_id_is_rejected_rather_than_dropped() -> None:
    part = {"type": "file", "file": {"file_id": "file-1"}}
    with pytest.raises(Invalid, match=r"messages\[0\]\.content\[0\]\.file\.file_data"):
        parsed({"role": "user", "content": [part]})


def test_unknown_parts_of_assistant_messages_are_skipped() -> None:
    parts = [{"type": "server_tool_use", "id": "x"}, {"type": "text", "text": "so"}]
    [turn] = parsed({"role": "assistant", "content": parts}).turns
    assert turn.blocks == (TextBlock("so"),)


# Provider requests


def test_an_empty_turn_is_left_out() -> None:
    thought = Turn("assistant", (ReasoningBlock("hm"),))
    assert asked(thought, Turn("user", (TextBlock("a"),)))["messages"] == [
        {"role": "user", "content": "a"}
    ]


def test_images_in_tool_results_follow_as_a_user_message() -> None:
    result = ToolResult("c", (TextBlock("here"), ImageBlock(PNG)))
    _, tool, user = asked(
        Turn("assistant", (ToolCall("c", "f", "{}"),)), Turn("user", (result, TextBlock("and?")))
    )["messages"]
    assert tool == {"role": "tool", "tool_call_id": "c", "content": "here"}
    assert [part["type"] for part in user["content"]] == ["image_url", "text"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (None, {"role": "assistant", "content": "so"}),
        (
            "reasoning_content",
            {"role": "assistant", "content": "so", "reasoning_content": "hm"},
        ),
    ],
)
def test_reasoning_is_sent_back_only_to_servers_that_accept_it(
    field: Any, expected: dict[str, Any]
) -> None:
    endpoint = Endpoint("a", "m", FREE, profile=Profile(takes_reasoning_as=field))
    turn = Turn("assistant", (ReasoningBlock("hm"), TextBlock("so")))
    assert asked(turn, endpoint=endpoint)["messages"] == [expected]


@pytest.mark.parametrize(("budget", "effort"), [(1024, "low"), (4000, "medium"), (16_000, "high")])
def test_a_reasoning_budget_becomes_an_effort(budget: int, effort: str) -> None:
    fields = asked(Turn("user", (TextBlock("a"),)), thinking=ThinkingOptions(budget_tokens=budget))
    assert fields["reasoning_effort"] == effort


def test_rejected_parameters_are_left_out_or_renamed() -> None:
    profile = Profile(
        refuses_in_chat=frozenset({"user", "max_tokens"}), output_limit="max_completion_tokens"
    )
    endpoint = Endpoint("a", "m", FREE, profile=profile)
    fields = asked(Turn("user", (TextBlock("a"),)), endpoint=endpoint, user="u", max_tokens=5)
    assert fields["max_completion_tokens"] == 5
    assert not fields.keys() & {"user", "max_tokens"}


def test_a_stream_requests_usage_if_the_server_supports_it() -> None:
    turn = Turn("user", (TextBlock("a"),))
    assert asked(turn, stream=True)["stream_options"] == {"include_usage": True}
    silent = Endpoint("a", "m", FREE, profile=Profile(usage_in_streams=False))
    assert "stream_options" not in asked(turn, stream=True, endpoint=silent)


def test_a_freeform_tool_becomes_a_function_with_one_field() -> None:
    [tool] = asked(
        Turn("user", (TextBlock("a"),)), tools=(ToolDefinition("patch", freeform=True),)
    )["tools"]
    assert tool["function"]["parameters"]["required"] == ["input"]


def test_stop_sequences_are_limited_to_what_the_dialect_accepts() -> None:
    fields = asked(Turn("user", (TextBlock("a"),)), stop=("a", "b", "c", "d", "e"))
    assert fields["stop"] == ["a", "b", "c", "d"]


def test_a_document_by_url_is_rejected_rather_than_dropped() -> None:
    with pytest.raises(Invalid, match="send its bytes"):
        asked(Turn("user", (DocumentBlock(url="https://a.example/a.pdf"),)))


@pytest.mark.parametrize(
    ("chunks", "complete"),
    [
        ([], False),
        ([{}], False),
        ([{"choices": []}], False),
        ([{"choices": [{"delta": {"role": "assistant", "content": ""}}]}], False),
        ([{"choices": [{"delta": {"content": "a"}}]}], True),
        ([{"choices": [{"delta": {}, "finish_reason": "stop"}]}], True),
    ],
)
def test_a_stream_without_finish_reason_is_complete_after_done_if_it_has_output(
    chunks: list[dict[str, Any]],
    complete: bool,  # noqa: FBT001
) -> None:
    decoder = PROVIDER_FORMAT.stream_decoder()
    for each in chunks:
        decoder.feed(json.dumps(each).encode())
    decoder.feed(b"[DONE]")
    assert decoder.complete is complete
