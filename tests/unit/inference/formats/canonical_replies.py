"""Strategies for canonical responses and the events of their streams."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.support.seams.formats_canonical import (
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
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    Usage,
    UsageReported,
)

USED = Usage(input_tokens=10, cache_read_tokens=2, output_tokens=7, reasoning_tokens=3)
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
objects = st.dictionaries(words, st.none() | st.integers(-9, 9) | words, max_size=2)
calls = st.builds(
    ToolCall, words, words, objects.map(lambda each: msgspec.json.encode(each).decode())
)
freeform = words.map(
    lambda text: ToolCall("call_p", "apply_patch", msgspec.json.encode({"input": text}).decode())
)
"""Calls of a tool that takes a text, where the client's format has such tools."""
thoughts = (
    st.builds(ReasoningBlock, text=words, signature=words, format=st.just(ANTHROPIC))
    | st.builds(ReasoningBlock, encrypted=words, format=st.just(ANTHROPIC))
    | st.builds(
        ReasoningBlock,
        text=words,
        is_summary=st.just(True),  # noqa: FBT003 - a strategy's only form
        encrypted=words,
        id=words,
        format=st.just(OPENAI),
    )
    | st.builds(ReasoningBlock, encrypted=words, format=st.just(OPENAI))
    | st.builds(ReasoningBlock, text=words)
)
blocks = st.lists(
    st.builds(TextBlock, words) | st.builds(RefusalBlock, words) | calls | freeform | thoughts,
    max_size=5,
    unique_by=lambda each: each.id if isinstance(each, ToolCall) else id(each),
)
finishes = st.sampled_from(["stop", "length", "tool_calls", "content_filter"])


@st.composite
def choices(draw: Any, index: int = 0) -> Choice:
    said = tuple(draw(blocks))
    called = any(isinstance(each, ToolCall) for each in said)
    finish = draw(finishes.filter(lambda reason: not (called and reason == "stop")))
    return Choice(said, finish, native_finish_reason=finish, index=index)


@st.composite
def replies(draw: Any, most_choices: int = 1) -> CanonicalResponse:
    count = draw(st.integers(1, most_choices))
    return CanonicalResponse(
        tuple(draw(choices(index)) for index in range(count)), usage=USED, upstream_id="up-1"
    )


def events_of(reply: CanonicalResponse, cut: int = 1) -> list[CanonicalEvent]:
    """Return the events of a response, each text in two pieces."""
    events: list[CanonicalEvent] = [StreamStarted(reply.upstream_id)]
    for choice in reply.choices:
        for number, block in enumerate(choice.blocks):
            events += _block(choice.index, number, block, cut)
        events.append(
            ChoiceFinished(choice.index, choice.finish_reason, choice.native_finish_reason)
        )
    return [*events, UsageReported(USED)]


def _block(choice: int, number: int, block: Block, cut: int) -> list[CanonicalEvent]:
    at = (choice, number)
    if isinstance(block, ToolCall):
        pieces = [ToolCallDelta(*at, piece) for piece in _pieces(block.arguments, cut)]
        return [ToolCallStarted(*at, block.id, block.name), *pieces, BlockEnded(*at)]
    if isinstance(block, ReasoningBlock):
        proof = ReasoningSignature(*at, block.signature, block.encrypted, block.id, block.format)
        said = [ReasoningDelta(*at, each, block.is_summary) for each in _pieces(block.text, cut)]
        return [*said, proof] if block.signature or block.encrypted else list(said)
    assert isinstance(block, (TextBlock, RefusalBlock))
    kind = TextDelta if isinstance(block, TextBlock) else RefusalDelta
    return [kind(*at, piece) for piece in _pieces(block.text, cut)]


def _pieces(text: str, cut: int) -> list[str]:
    return [piece for piece in (text[:cut], text[cut:]) if piece]
