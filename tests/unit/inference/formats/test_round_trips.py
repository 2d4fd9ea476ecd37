"""Replies through a client's format and back: nothing that a model said is lost on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.seams.formats import CUT, IDENTITY
from tests.support.seams.formats_canonical import (
    CLIENTS,
    PROVIDERS,
    Block,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    EventParser,
    ReasoningBlock,
    RefusalBlock,
    ResponseBuilder,
    TextBlock,
    ToolCall,
    charge_of,
    prompt_of,
    source_of,
    unpack,
)
from tests.support.stream_checks import chat, messages, responses
from tests.unit.inference.formats.canonical_replies import USED, events_of, replies

if TYPE_CHECKING:
    from collections.abc import Iterable

CHECKS = {"chat": chat, "responses": responses, "messages": messages}
SAID = [{"role": "user", "content": "hello"}]
FREEFORM = {"type": "custom", "name": "apply_patch"}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": SAID},
    "responses": {"model": "m", "input": SAID, "tools": [FREEFORM]},
    "messages": {"model": "m", "messages": SAID},
}
CHARGE = charge_of(USED)


@dataclass(frozen=True)
class Trip:
    """A client's format, with the provider's of the same name."""

    name: str

    @property
    def source(self) -> Any:
        return source_of(self.name, json.dumps(ASKED[self.name]).encode())

    def rendered(self, reply: CanonicalResponse) -> bytes:
        return CLIENTS[self.name].render_response(self.source, reply, IDENTITY, CHARGE)

    def written(self, events: Iterable[CanonicalEvent], *, cut: bool = False) -> bytes:
        encoder = CLIENTS[self.name].stream_encoder(self.source, IDENTITY)
        said = [encoder.write(event) for event in events]
        return b"".join([*said, encoder.fail(CUT) if cut else encoder.end(CHARGE)])

    def reread(self, stream: bytes) -> CanonicalResponse:
        decoder, builder = PROVIDERS[self.name].stream_decoder(), ResponseBuilder()
        for data in EventParser().feed(stream):
            for event in decoder.feed(data):
                builder.add(event)
        assert decoder.done
        return builder.build()

    def sent_back(self, reply: CanonicalResponse) -> list[Block]:
        """Return what a client sends back that puts a reply into its next request."""
        shown = json.loads(self.rendered(reply))
        turns = {
            "chat": lambda: {"messages": [shown["choices"][0]["message"]]},
            "responses": lambda: {"input": [*SAID, *shown["output"]]},
            "messages": lambda: {"messages": [{"role": "assistant", "content": shown["content"]}]},
        }
        body = {**ASKED[self.name], **turns[self.name]()}
        prompt = prompt_of(self.name, json.dumps(body, ensure_ascii=False).encode())
        return [each for turn in prompt.turns if turn.role == "assistant" for each in turn.blocks]


trips = st.sampled_from([Trip("chat"), Trip("responses"), Trip("messages")])


def kept(trip: Trip, blocks: Iterable[Block]) -> list[Any]:
    """Return what a format keeps of blocks: chat joins texts, messages has no refusals."""
    found = [_unpacked(block) for block in blocks]
    if trip.name == "chat":
        texts, refusals = (
            "".join(each.text for each in found if isinstance(each, kind))
            for kind in (TextBlock, RefusalBlock)
        )
        thoughts = [replace(each, field=None) for each in found if isinstance(each, ReasoningBlock)]
        return [texts, refusals, thoughts, [each for each in found if isinstance(each, ToolCall)]]
    if trip.name == "messages":
        return [TextBlock(each.text) if isinstance(each, RefusalBlock) else each for each in found]
    return found


def _unpacked(block: Block) -> Block:
    if isinstance(block, ReasoningBlock):
        return unpack(block.signature or block.encrypted or "") or block
    return block


def apart(blocks: tuple[Block, ...]) -> bool:
    """Return whether no unsigned reasoning is followed by more; in a stream they are one block."""
    return not any(
        isinstance(first, ReasoningBlock)
        and not first.format
        and isinstance(second, ReasoningBlock)
        for first, second in pairwise(blocks)
    )


def finished(trip: Trip, choice: Choice) -> str:
    refused = any(isinstance(each, RefusalBlock) for each in choice.blocks)
    if trip.name == "messages" and refused:
        return "content_filter"
    if trip.name == "responses" and choice.finish_reason == "tool_calls":
        return "tool_calls" if any(isinstance(each, ToolCall) for each in choice.blocks) else "stop"
    return choice.finish_reason


def same(trip: Trip, got: CanonicalResponse, reply: CanonicalResponse) -> None:
    for mine, theirs in zip(got.choices, reply.choices, strict=True):
        assert kept(trip, mine.blocks) == kept(trip, theirs.blocks)
        assert mine.finish_reason == finished(trip, theirs)
    assert got.usage == USED


@given(trips, st.data())
def test_a_whole_reply_survives_a_round_trip(trip: Trip, data: st.DataObject) -> None:
    reply = data.draw(replies(most_choices=3 if trip.name == "chat" else 1))
    same(trip, PROVIDERS[trip.name].parse_response(trip.rendered(reply)), reply)


@given(trips, st.data())
def test_a_stream_survives_a_round_trip(trip: Trip, data: st.DataObject) -> None:
    reply = data.draw(replies(most_choices=3 if trip.name == "chat" else 1))
    stream = trip.written(events_of(reply))
    CHECKS[trip.name].check_stream(stream)
    if trip.name != "chat" or all(apart(choice.blocks) for choice in reply.choices):
        same(trip, trip.reread(stream), reply)


@given(trips, replies())
def test_a_reply_that_a_client_sends_back_is_unchanged(
    trip: Trip, reply: CanonicalResponse
) -> None:
    assert kept(trip, trip.sent_back(reply)) == kept(trip, reply.choices[0].blocks)


@settings(max_examples=60)
@given(trips, replies())
def test_a_stream_that_fails_anywhere_ends_with_its_error(
    trip: Trip, reply: CanonicalResponse
) -> None:
    events = events_of(reply)
    for cut in range(len(events)):
        stream = trip.written(events[:cut], cut=True)
        CHECKS[trip.name].check_stream(stream)
        assert b'"error":{' in stream


@settings(max_examples=40)
@given(replies())
def test_a_stream_ends_with_the_same_response_as_a_whole_reply(reply: CanonicalResponse) -> None:
    trip = Trip("responses")
    whole = json.loads(trip.rendered(reply))
    responses.check_response(whole)
    streamed = responses.check_stream(trip.written(events_of(reply))).response
    assert _without_encrypted(streamed) == _without_encrypted(whole)


def _without_encrypted(response: dict[str, Any]) -> dict[str, Any]:
    """Return a response without fields that differ: a stream sends ids before encrypted content."""
    output = [
        {**item, "id": None, "encrypted_content": None} if item["type"] == "reasoning" else item
        for item in response["output"]
    ]
    return {**response, "output": output}


@given(replies(most_choices=3))
def test_the_events_of_a_reply_build_it(reply: CanonicalResponse) -> None:
    builder = ResponseBuilder()
    for event in events_of(reply):
        builder.add(event)
    assert builder.build() == replace(reply)


@pytest.mark.parametrize("text", ["", "EqRk", "th1.", "th1.!!", "th1.e30"])
def test_text_that_is_no_packed_reasoning_is_not_unpacked(text: str) -> None:
    assert unpack(text) in (None, ReasoningBlock())
