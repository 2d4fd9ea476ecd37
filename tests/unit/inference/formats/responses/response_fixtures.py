"""Fixtures of the responses format: requests, identity, charges and responses."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import msgspec
from hypothesis import strategies as st

from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.types import Price, Rates, Usage
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.canonical.stream import ResponseBuilder
from tollhouse.inference.formats.canonical.translation import TranslationSource
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
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    unpack,
)
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.responses.provider_response import ResponsesStreamDecoder
from tollhouse.inference.formats.responses.wire import ResponsesRequest, parse_request
from tollhouse.inference.sse import EventParser
from tollhouse.inference.types import Endpoint, ReplyIdentity
from tollhouse.kernel.errors import ProviderUnavailable

IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
PRICE = Price(
    Rates(
        prompt=Decimal("0.000001"),
        completion=Decimal("0.000004"),
        cache_read=Decimal("0.0000001"),
        cache_write=Decimal("0.00000125"),
        cache_write_1h=Decimal("0.000002"),
    )
)
ENDPOINT = Endpoint(provider="acme", model="large-2026", price=PRICE)
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
USAGE = Usage(input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3)
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edit files."}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def request(**fields: Any) -> ResponsesRequest:
    """Return a request with these fields."""
    return parse_request(json.dumps({"model": "acme/large", "input": "hello"} | fields).encode())


TOOLS = request(tools=[PATCH, WEATHER])
SOURCE = TranslationSource(TOOLS, RESPONSES_CLIENT)


def charge(usage: Usage | None = USAGE, finish_reason: str | None = "stop") -> Any:
    """Return the charge for a usage."""
    seen = Usage(input_tokens=1)
    return charge_for(usage, seen, PRICE, finish_reason=finish_reason, broken_off=False)


def reply(*blocks: Block, finish_reason: Any = "stop", **fields: Any) -> CanonicalResponse:
    """Return a response with these blocks."""
    return CanonicalResponse(choices=(Choice(blocks, finish_reason, **fields),), usage=USAGE)


def unpacked(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return blocks with packed reasoning unpacked."""
    return tuple(_unpacked(block) for block in blocks)


def _unpacked(block: Block) -> Block:
    if isinstance(block, ReasoningBlock) and block.encrypted:
        return unpack(block.encrypted) or block
    return block


def read_stream(stream: bytes) -> CanonicalResponse:
    """Return the response of a stream."""
    decoder, builder = ResponsesStreamDecoder(), ResponseBuilder()
    for data in EventParser().feed(stream):
        for event in decoder.feed(data):
            builder.add(event)
    return builder.build()


def written(*events: CanonicalEvent, source: TranslationSource = SOURCE) -> bytes:
    """Return a client's complete stream of these events."""
    encoder = RESPONSES_CLIENT.stream_encoder(source, IDENTITY)
    return b"".join([*map(encoder.write, events), encoder.end(charge())])


def relayed(stream: Any, *pieces: bytes) -> bytes:
    """Return a client's complete stream for a provider's bytes and a clean end."""
    parser = EventParser()
    out: list[bytes] = []
    try:
        for piece in pieces:
            out.extend(stream.feed(data) for data in parser.feed(piece))
    except (ErrorEvent, MalformedResponse):
        return b"".join([*out, stream.fail(CUT)])
    end = stream.end(charge(stream.reported)) if stream.complete else stream.fail(CUT)
    return b"".join([*out, end])


# Strategies for responses and their streams

_text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
_json = st.dictionaries(_text, st.integers() | _text, max_size=2).map(json.dumps)
_functions = st.builds(ToolCall, st.just("call_1"), st.just("get_weather"), _json)
_patches = st.builds(
    lambda text: ToolCall("call_2", "apply_patch", msgspec.json.encode({"input": text}).decode()),
    _text,
)
_plain = st.builds(ReasoningBlock, text=_text, is_summary=st.booleans())
_anthropic = st.builds(
    ReasoningBlock, text=_text, signature=_text, format=st.just(ANTHROPIC)
) | st.builds(ReasoningBlock, encrypted=_text, format=st.just(ANTHROPIC))
_openai = st.builds(
    ReasoningBlock,
    text=_text,
    is_summary=st.sampled_from([True]),
    encrypted=st.just("gAAA"),
    id=st.none() | st.just("rs_1"),
    format=st.just(OPENAI),
)
_blocks = st.one_of(
    st.builds(TextBlock, _text),
    st.builds(RefusalBlock, _text),
    _functions,
    _patches,
    _plain,
    _anthropic,
    _openai,
)
finish_reasons = st.sampled_from(["stop", "length", "content_filter"])
replies = st.builds(
    lambda blocks, finish_reason: reply(*blocks, finish_reason=finish_reason),
    st.lists(_blocks, max_size=5),
    finish_reasons,
)


def events_of(response: CanonicalResponse) -> list[CanonicalEvent]:
    """Return the events of a response, each text in two pieces."""
    choice = response.choices[0]
    events: list[CanonicalEvent] = [StreamStarted("up-1")]
    for number, block in enumerate(choice.blocks):
        events += [*_events_of(number, block), BlockEnded(0, number)]
    return [*events, ChoiceFinished(0, choice.finish_reason, "word")]


def _events_of(number: int, block: Block) -> list[CanonicalEvent]:
    if isinstance(block, ToolCall):
        pieces = [ToolCallDelta(0, number, piece) for piece in _halves(block.arguments)]
        return [ToolCallStarted(0, number, block.id, block.name), *pieces]
    if isinstance(block, ReasoningBlock):
        proof = ReasoningSignature(
            0, number, block.signature, block.encrypted, block.id, block.format
        )
        deltas = [
            ReasoningDelta(0, number, piece, block.is_summary) for piece in _halves(block.text)
        ]
        return [*deltas, proof]
    if isinstance(block, RefusalBlock):
        return [RefusalDelta(0, number, piece) for piece in _halves(block.text)]
    assert isinstance(block, TextBlock)
    return [TextDelta(0, number, piece) for piece in _halves(block.text)]


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [half for half in (text[:middle], text[middle:]) if half]
