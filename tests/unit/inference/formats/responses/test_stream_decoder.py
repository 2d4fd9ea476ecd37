"""Decoding a provider's responses stream."""

from typing import Any

import pytest

from tests.unit.inference.formats.responses.provider import (
    CALL,
    CREATED,
    DONE,
    ITEMS,
    MESSAGE,
    REASONING,
    STREAMS,
    completed,
    event,
    response,
    stream_of,
)
from tests.unit.inference.formats.responses.response_fixtures import USAGE, read_stream
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.stream import BlockSequencer
from tollhouse.inference.formats.canonical.types import (
    OPENAI,
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.responses.provider_request import RESPONSES_PROVIDER
from tollhouse.inference.formats.responses.provider_response import ResponsesStreamDecoder
from tollhouse.inference.sse import EventParser

NAMES = {
    "nothing": (),
    "text": ("text",),
    "reasoning, text": ("reasoning", "text"),
    "reasoning, two calls": ("reasoning", "call", "patch"),
    "a server's tool": ("search", "text"),
}


def read(*events: bytes) -> list[CanonicalEvent]:
    decoder = ResponsesStreamDecoder()
    return [told for data in EventParser().feed(b"".join(events)) for told in decoder.feed(data)]


def test_text_is_decoded_as_it_arrives() -> None:
    assert read(*STREAMS["text"], DONE) == [
        StreamStarted("resp_1"),
        TextDelta(0, 0, "Hel"),
        TextDelta(0, 0, "lo!"),
        BlockEnded(0, 0),
        ChoiceFinished(0, "stop", "completed"),
        UsageReported(USAGE),
    ]


def test_a_summary_is_one_text_followed_by_its_encrypted_content() -> None:
    assert read(*stream_of("reasoning"))[1:-2] == [
        ReasoningDelta(0, 0, "One.", is_summary=True),
        ReasoningDelta(0, 0, "\n\nTwo.", is_summary=True),
        ReasoningSignature(0, 0, encrypted="gAAA", id="rs_1", format=OPENAI),
        BlockEnded(0, 0),
    ]


def test_a_call_starts_before_its_arguments() -> None:
    assert read(*stream_of("call"))[1:-1] == [
        ToolCallStarted(0, 0, "call_1", "get_weather"),
        ToolCallDelta(0, 0, '{"city":'),
        ToolCallDelta(0, 0, '"Rome"}'),
        BlockEnded(0, 0),
        ChoiceFinished(0, "tool_calls", "completed"),
    ]


def test_the_input_of_a_custom_call_becomes_an_object() -> None:
    assert read(*stream_of("patch"))[2] == ToolCallDelta(0, 0, '{"input":"say \\"hi\\""}')


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_decodes_to_its_complete_response(name: str) -> None:
    items = [ITEMS[each][1] for each in NAMES[name]]
    body = completed(*items).split(b'"response":', 1)[1].removesuffix(b"}\n\n")
    assert read_stream(b"".join(STREAMS[name])) == RESPONSES_PROVIDER.parse_response(body)


@pytest.mark.parametrize("name", STREAMS)
def test_content_without_deltas_is_taken_from_the_end_of_its_item(name: str) -> None:
    terse = [each for each in STREAMS[name] if b".delta" not in each.split(b"\n")[0]]
    assert read_stream(b"".join(terse)) == read_stream(b"".join(STREAMS[name]))


@pytest.mark.parametrize("name", STREAMS)
def test_content_without_items_is_taken_from_the_terminal_event(name: str) -> None:
    terse = [CREATED, STREAMS[name][-1]]
    assert read_stream(b"".join(terse)) == read_stream(b"".join(STREAMS[name]))


@pytest.mark.parametrize("name", STREAMS)
def test_blocks_are_decoded_one_after_the_other(name: str) -> None:
    sequence, told = BlockSequencer(), read(*STREAMS[name])
    assert [each for event in told for each in sequence.feed(event)] == told


def test_parts_of_one_item_are_separate_blocks() -> None:
    part = MESSAGE["content"][0]
    item = MESSAGE | {"content": [part, {"type": "refusal", "refusal": "No."}, part]}
    told = read(CREATED, event("response.output_item.done", output_index=0, item=item))
    assert [each.block for each in told if isinstance(each, BlockEnded)] == [0, 1, 2]


def test_log_probabilities_come_with_their_text() -> None:
    at = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    token = {"token": "a", "logprob": -0.5}
    told = read(
        event("response.output_item.added", output_index=0, item=MESSAGE),
        event("response.output_text.delta", **at, delta="a", logprobs=[token]),
    )
    assert isinstance(told[0], TextDelta)
    assert told[0].logprobs is not None
    assert b'"content":[{"token":"a","logprob":-0.5}]' in bytes(told[0].logprobs)


def test_events_of_an_unknown_type_are_skipped() -> None:
    assert read(event("keepalive"), event("response.novelty", delta=5, output_index="x")) == []


@pytest.mark.parametrize(
    "failure",
    [
        event("error", code="server_error", message="Sorry.", param=None),
        event("error", error={"code": "server_error", "message": "Sorry."}),
        event(
            "response.failed",
            response=response(status="failed", error={"code": "server_error", "message": "Sorry."}),
        ),
        b'data: {"error":{"type":"server_error","message":"Sorry."}}\n\n',
    ],
)
def test_each_form_of_an_error_is_raised_as_the_providers(failure: bytes) -> None:
    with pytest.raises(ErrorEvent) as raised:
        read(CREATED, failure)
    assert (raised.value.code, raised.value.message) == ("server_error", "Sorry.")


def added(item: dict[str, Any], index: int = 0) -> bytes:
    return event("response.output_item.added", output_index=index, item=item)


@pytest.mark.parametrize(
    "wrong",
    [
        [b"data: no json\n\n"],
        [b"data: []\n\n"],
        [b"data: {}\n\n"],
        [b'data: {"type":5}\n\n'],
        [b"data: " + b"[" * 100_000 + b"\n\n"],
        [event("response.output_text.delta", output_index=0, content_index=0, delta="a")],
        [event("response.output_text.delta", delta="a")],
        [
            added(REASONING),
            event("response.function_call_arguments.delta", output_index=0, delta=""),
        ],
        [added(MESSAGE), added(MESSAGE)],
        [added(CALL | {"call_id": None})],
        [
            added(MESSAGE),
            event("response.output_item.done", output_index=0, item=MESSAGE),
            event("response.output_item.done", output_index=0, item=MESSAGE),
        ],
        [event("response.completed")],
        [event("response.completed", response={"output": 5})],
        [event("response.completed", response=response(status="in_progress"))],
    ],
)
def test_invalid_streams_are_malformed(wrong: list[bytes]) -> None:
    with pytest.raises(MalformedResponse):
        read(*wrong)


def test_a_stream_is_complete_only_after_its_terminal_event() -> None:
    decoder = ResponsesStreamDecoder()
    for data in EventParser().feed(b"".join([*STREAMS["text"][:-1], DONE])):
        decoder.feed(data)
    assert not decoder.done
    assert not decoder.complete
    for data in EventParser().feed(STREAMS["text"][-1] * 2):
        decoder.feed(data)
    assert decoder.done
    assert decoder.complete
