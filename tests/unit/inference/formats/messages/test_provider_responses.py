"""Parsing a provider's messages responses, complete and streamed."""

import json
from typing import Any

import pytest

from tests.unit.inference.formats.messages.samples import (
    END,
    PING,
    SAID,
    STREAMS,
    USAGE,
    USED,
    add,
    begin,
    event,
    last,
    start,
    stop,
)
from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.stream import ResponseBuilder
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    Block,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningSignature,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.messages.provider_request import MESSAGES_PROVIDER
from tollhouse.inference.formats.messages.provider_response import MessagesStreamDecoder
from tollhouse.inference.sse import EventParser

INPUT = Usage(input_tokens=10, cache_read_tokens=3, cache_write_tokens=4, cache_write_1h_tokens=2)


def read(*content: Any, **fields: Any) -> CanonicalResponse:
    body = {"id": "msg_1", "content": list(content), "stop_reason": "end_turn", "usage": USAGE}
    return MESSAGES_PROVIDER.parse_response(json.dumps(body | fields).encode())


def said(*events: bytes) -> list[CanonicalEvent]:
    decoder = MESSAGES_PROVIDER.stream_decoder()
    return [each for data in EventParser().feed(b"".join(events)) for each in decoder.feed(data)]


def built(*events: bytes) -> CanonicalResponse:
    builder = ResponseBuilder()
    for each in said(*events):
        builder.add(each)
    return builder.build()


def blocks(*events: bytes) -> tuple[Block, ...]:
    return built(*events).choices[0].blocks


def fed(*events: bytes) -> MessagesStreamDecoder:
    decoder = MESSAGES_PROVIDER.stream_decoder()
    for data in EventParser().feed(b"".join(events)):
        decoder.feed(data)
    return decoder


# Complete


def test_a_response_is_parsed_with_its_metadata() -> None:
    reply = read({"type": "text", "text": "a"}, stop_reason="stop_sequence", stop_sequence="END")
    (choice,) = reply.choices
    assert choice.blocks == (TextBlock("a"),)
    assert (choice.finish_reason, choice.native_finish_reason) == ("stop", "stop_sequence")
    assert choice.stop_sequence == "END"
    assert (reply.usage, reply.upstream_id, reply.service_tier) == (USED, "msg_1", "default")


def test_blocks_of_every_type_are_parsed() -> None:
    reply = read(
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "a", "citations": None},
        {"type": "server_tool_use", "id": "s", "name": "n", "input": {}},
        {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}},
        {"type": "tool_use", "id": "u", "name": "wait"},
    )
    assert reply.choices[0].blocks == (
        ReasoningBlock(text="Hm.", signature="s", format=ANTHROPIC),
        ReasoningBlock(encrypted="d", format=ANTHROPIC),
        TextBlock("a"),
        ToolCall("t", "look", '{"a": 1}'),
        ToolCall("u", "wait", "{}"),
    )


def test_an_invalid_usage_is_ignored() -> None:
    assert read(usage={"input_tokens": -1, "output_tokens": 1}).usage is None


def test_a_body_that_is_not_a_message_is_malformed() -> None:
    with pytest.raises(MalformedResponse):
        MESSAGES_PROVIDER.parse_response(b'{"choices":[]}')
    with pytest.raises(ErrorEvent):
        MESSAGES_PROVIDER.parse_response(
            b'{"type":"error","error":{"type":"api_error","message":"a"}}'
        )


# Streamed


def test_text_is_decoded_as_it_arrives() -> None:
    assert said(*STREAMS["text"]) == [
        StreamStarted("msg_1", INPUT),
        TextDelta(0, 0, "Hello, "),
        TextDelta(0, 0, "wörld"),
        BlockEnded(0, 0),
        ChoiceFinished(0, "stop", "end_turn"),
        UsageReported(USED),
    ]


def test_calls_are_decoded_as_they_arrive() -> None:
    got = said(*STREAMS["tools"])[4:-2]
    assert got == [
        ToolCallStarted(0, 1, "toolu_1", "look"),
        ToolCallDelta(0, 1, '{"at": '),
        ToolCallDelta(0, 1, "1}"),
        BlockEnded(0, 1),
        ToolCallStarted(0, 2, "toolu_2", "wait"),
        ToolCallDelta(0, 2, "{}"),
        BlockEnded(0, 2),
    ]


def test_arguments_in_the_block_start_are_decoded() -> None:
    call = begin(0, "tool_use", id="t", name="look", input={"a": 1})
    assert blocks(start(), call, stop(0), last()) == (ToolCall("t", "look", '{"a": 1}'),)
    more = add(0, "input_json_delta", partial_json='{"a":1}')
    assert blocks(start(), call, more, stop(0), last()) == (ToolCall("t", "look", '{"a":1}'),)


def test_reasoning_is_decoded_with_its_signature() -> None:
    assert blocks(*STREAMS["thoughts"]) == (
        ReasoningBlock(text="Hm. Yes.", signature="c2ln", format=ANTHROPIC),
        ReasoningBlock(encrypted="c2VjcmV0", format=ANTHROPIC),
        TextBlock("Yes."),
    )
    whole = begin(0, "thinking", thinking="Hm.", signature="s")
    assert blocks(start(), whole, stop(0), last()) == (
        ReasoningBlock(text="Hm.", signature="s", format=ANTHROPIC),
    )


def test_unsigned_reasoning_is_anthropics() -> None:
    events = [start(), begin(0, "thinking"), add(0, "thinking_delta", thinking="Hm."), stop(0)]
    assert said(*events)[-2] == ReasoningSignature(0, 0, format=ANTHROPIC)


def test_blocks_without_a_canonical_form_are_skipped() -> None:
    assert blocks(*STREAMS["server tools"]) == (TextBlock("Found."),)


def test_a_stop_sequence_is_decoded() -> None:
    ended = event("message_delta", delta={"stop_reason": "stop_sequence", "stop_sequence": "END"})
    (choice,) = built(start(), ended).choices
    assert choice.stop_sequence == "END"


def test_a_response_finishes_once_and_the_last_usage_counts() -> None:
    got = said(start(), last(usage={"output_tokens": 1}), last("max_tokens"), END)
    assert [each for each in got if isinstance(each, ChoiceFinished)] == [
        ChoiceFinished(0, "stop", "end_turn")
    ]
    assert got[-1] == UsageReported(USED)


def test_a_usage_needs_output_tokens_at_the_end() -> None:
    got = said(start(), *SAID, last(usage=None), END)
    assert not any(isinstance(each, UsageReported) for each in got)


def test_a_stream_is_complete_before_it_is_done() -> None:
    assert not fed(PING, start(), *SAID).complete
    assert fed(start(), last()).complete
    assert not fed(start(), last()).done
    assert fed(start(), last(), END).done
    assert fed(start(), last(), END).feed(b"nothing more") == ()


@pytest.mark.parametrize(
    "events", [[SAID[0]], [start(), start()], [start(), begin(0, "text"), last()], [END]]
)
def test_events_out_of_order_are_malformed(events: list[bytes]) -> None:
    with pytest.raises(MalformedResponse):
        said(*events)


@pytest.mark.parametrize("data", [b"{", b"5", b"{}", b'{"type":"message_delta","delta":5}'])
def test_invalid_events_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        fed(start()).feed(data)


def test_the_providers_error_is_raised() -> None:
    with pytest.raises(ErrorEvent) as caught:
        fed(start()).feed(b'{"type":"error","error":{"type":"overloaded_error","message":"a"}}')
    assert caught.value.code == "overloaded_error"
