"""Anthropic's messages: the request, the reply, and how a reply is known to be whole.

Source: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import Final

import msgspec

from bench.traffic import (
    ANSWER,
    CHUNKS,
    INPUT_TOKENS,
    INSTRUCTIONS,
    OUTPUT_TOKENS,
    PIECES,
    PROVIDER_MODEL,
    QUESTION,
    TEMPERATURE,
    Event,
    Truncated,
    check_text,
    check_usage,
    read_events,
)

PATH: Final = "/v1/messages"

_MOST_TOKENS = 1_024
_LEGAL = [
    "message_start",
    "content_block_start",
    *["content_block_delta"] * CHUNKS,
    "content_block_stop",
    "message_delta",
    "message_stop",
]
_USAGE: dict[str, object] = {
    "input_tokens": INPUT_TOKENS,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}
"""As a stream says it at its start."""


class _Content(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    stop_reason: str | None = None


class _Usage(msgspec.Struct):
    output_tokens: int
    input_tokens: int | None = None
    cost: float | None = None


class _Reply(msgspec.Struct):
    type: str
    content: list[_Content]
    usage: _Usage
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    message: _Reply | None = None
    delta: _Content | None = None
    usage: _Usage | None = None


_reply = msgspec.json.Decoder(_Reply)
_event = msgspec.json.Decoder(_Event)
_DELTAS = [("text_delta", text) for text in PIECES]


def request_body(model: str, *, stream: bool) -> bytes:
    """Return a request of 2 KB, as the client sends it."""
    body: dict[str, object] = {
        "model": model,
        "max_tokens": _MOST_TOKENS,
        "system": INSTRUCTIONS,
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": TEMPERATURE,
    }
    return msgspec.json.encode(body | {"stream": True} if stream else body)


def reply_body() -> bytes:
    """Return the upstream's whole reply, about 1 KB."""
    return msgspec.json.encode(
        _message([{"type": "text", "text": ANSWER}], "end_turn", OUTPUT_TOKENS)
    )


def stream_pieces() -> tuple[bytes, ...]:
    """Return the upstream's stream as it is written, one element for each write."""
    block = {"type": "text", "text": ""}
    begin = (
        _written("message_start", {"message": _message([], None, 1)})
        + _written("content_block_start", {"index": 0, "content_block": block})
        + _written("ping", {})
    )
    first, *middle, last = map(_text_delta, PIECES)
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    end = (
        _written("content_block_stop", {"index": 0})
        + _written("message_delta", {"delta": delta, "usage": {"output_tokens": OUTPUT_TOKENS}})
        + _written("message_stop", {})
    )
    return (begin + first, *middle, last + end)


def check_whole(body: bytes, *, priced: bool) -> None:
    """Accept a whole reply; see `bench.formats.Check`."""
    try:
        reply = _reply.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"not a message: {error}") from None
    check_text([(block.type, block.text) for block in reply.content], [("text", ANSWER)])
    if (reply.type, reply.stop_reason) != ("message", "end_turn"):
        raise Truncated("a message that does not end its turn")
    _check_usage(reply.usage, reply.usage, priced=priced)


def check_stream(body: bytes, *, priced: bool) -> None:
    """Accept a stream; see `bench.formats.Check`."""
    read = [_read(event) for event in read_events(body)]
    events = [event for event in read if event.type != "ping"]
    if [event.type for event in events] != _LEGAL:
        raise Truncated("a stream whose events are not those of one text")
    start, end = events[0].message, events[-2]
    deltas = [event.delta for event in events[2:-3] if event.delta]
    check_text([(delta.type, delta.text) for delta in deltas], _DELTAS)
    if end.delta is None or end.delta.stop_reason != "end_turn":
        raise Truncated("a stream that does not end its turn")
    if start is None or end.usage is None:
        raise Truncated("no usage")
    _check_usage(start.usage, end.usage, priced=priced)


def _read(event: Event) -> _Event:
    try:
        read = _event.decode(event.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Truncated(f"no event of messages: {error}") from None
    if read.type != event.name:
        raise Truncated(f"an event {event.name} that says {read.type}")
    return read


def _check_usage(start: _Usage, end: _Usage, *, priced: bool) -> None:
    """Accept the counts at the end, which hold over those at the start."""
    given = start.input_tokens if end.input_tokens is None else end.input_tokens
    check_usage(given or 0, end.output_tokens, end.cost, priced=priced)


def _message(content: list[object], stop_reason: str | None, output: int) -> dict[str, object]:
    return {
        "id": "msg_bench0000000000000000",
        "type": "message",
        "role": "assistant",
        "model": PROVIDER_MODEL,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": _USAGE | {"output_tokens": output},
    }


def _text_delta(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return _written("content_block_delta", {"index": 0, "delta": delta})


def _written(kind: str, fields: dict[str, object]) -> bytes:
    data = msgspec.json.encode({"type": kind} | fields)
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"
