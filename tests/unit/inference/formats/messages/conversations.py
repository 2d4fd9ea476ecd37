"""Strategies for canonical responses and the events of their streams."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.unit.inference.formats.messages.samples import USED
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    OPENAI,
    Block,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    unpack,
)

words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
objects = st.dictionaries(words, st.none() | st.booleans() | st.integers(-9, 9) | words, max_size=2)
texts = st.builds(TextBlock, words)
calls = st.builds(
    ToolCall, words, words, objects.map(lambda each: msgspec.json.encode(each).decode())
)
native = st.builds(
    ReasoningBlock, text=words, signature=words, format=st.just(ANTHROPIC)
) | st.builds(ReasoningBlock, encrypted=words, format=st.just(ANTHROPIC))
foreign = st.builds(
    ReasoningBlock,
    text=st.just("") | words,
    is_summary=st.booleans(),
    signature=st.none() | words,
    encrypted=st.none() | words,
    id=st.none() | words,
    format=st.none() | st.just(OPENAI),
).filter(lambda each: bool(each.text) or not each.is_summary)
blocks = st.lists(texts | calls | native | foreign, max_size=4)
endings = st.sampled_from(
    [
        ("stop", "end_turn", None),
        ("stop", "stop_sequence", "END"),
        ("length", "max_tokens", None),
        ("tool_calls", "tool_use", None),
        ("content_filter", "refusal", None),
    ]
)


@st.composite
def replies(draw: Any) -> CanonicalResponse:
    choice = Choice(tuple(draw(blocks)), *draw(endings))
    return CanonicalResponse((choice,), usage=USED, upstream_id="gen-1")


@st.composite
def tellings(draw: Any) -> tuple[CanonicalResponse, list[CanonicalEvent]]:
    """Return a response and the events of its stream."""
    reply = draw(replies())
    (choice,) = reply.choices
    events: list[CanonicalEvent] = [StreamStarted("up-1")]
    for number, block in enumerate(choice.blocks):
        events += _told(draw, number, block)
        if draw(st.booleans()):
            events.append(BlockEnded(0, number))
    ending = (choice.finish_reason, choice.native_finish_reason, choice.stop_sequence)
    return reply, [*events, ChoiceFinished(0, *ending), UsageReported(USED)]


def restored(reply: CanonicalResponse) -> tuple[Any, ...]:
    """Return a response's content, with packed reasoning unpacked."""
    (choice,) = reply.choices
    return (
        tuple(_unpacked(block) for block in choice.blocks),
        choice.finish_reason,
        choice.native_finish_reason,
        choice.stop_sequence,
    )


def _unpacked(block: Block) -> Block:
    if isinstance(block, ReasoningBlock) and block.signature is not None:
        return unpack(block.signature) or block
    return block


def _told(draw: Any, number: int, block: Block) -> list[CanonicalEvent]:
    if isinstance(block, TextBlock):
        return [TextDelta(0, number, piece) for piece in _pieces(draw, block.text)]
    if isinstance(block, ToolCall):
        pieces = _pieces(draw, block.arguments)
        call = ToolCallStarted(0, number, block.id, block.name)
        return [call, *(ToolCallDelta(0, number, piece) for piece in pieces)]
    assert isinstance(block, ReasoningBlock)
    thoughts = [
        ReasoningDelta(0, number, piece, block.is_summary) for piece in _pieces(draw, block.text)
    ]
    proof = ReasoningSignature(0, number, block.signature, block.encrypted, block.id, block.format)
    return [*thoughts, proof]


def _pieces(draw: Any, text: str) -> list[str]:
    cut = draw(st.integers(0, len(text)))
    return [piece for piece in (text[:cut], text[cut:]) if piece]
