"""The shapes of the messages format that the gateway looks into, and its words.

Source: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.raw_json import NULL, encoder, join_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.canonical.response import FinishReason

_NO_INPUT: Final = (NULL, Raw(b"{}"))
DEFAULT_MAX_TOKENS: Final = 4096
"""Anthropic requires a limit; this one holds where neither the client nor the catalogue has one."""

_FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def normalize_finish_reason(native: str) -> FinishReason:
    """Return the wire's word for a stop reason; one that is not known counts as `stop`."""
    return _FINISH_REASONS.get(native, "stop")


class ContentBlock(msgspec.Struct):
    """A block of a reply, or the beginning of one; which fields it has depends on its type."""

    type: str
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Raw = NULL


class MessagesDelta(msgspec.Struct):
    """What an event adds: to a block, or to the message at its end."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageObject(msgspec.Struct):
    """A whole message, or the one that a stream begins with."""

    id: str | None = None
    content: list[ContentBlock] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Raw = NULL


class MessagesEvent(msgspec.Struct):
    """Any event of a stream."""

    type: str
    index: int | None = None
    message: MessageObject | None = None
    content_block: ContentBlock | None = None
    delta: MessagesDelta | None = None
    usage: Raw = NULL


def output_bytes(said: ContentBlock | MessagesDelta) -> int:
    """Return how many bytes a block or a delta adds to what the model said."""
    texts: list[str | None] = [said.text, said.thinking]
    if isinstance(said, MessagesDelta):
        texts.append(said.partial_json)
    elif said.input not in _NO_INPUT:
        texts.append(bytes(said.input).decode())
    return sum(len(text.encode()) for text in texts if text)


event_decoder: Final = msgspec.json.Decoder(MessagesEvent)
message_decoder: Final = msgspec.json.Decoder(MessageObject)


def named_event(kind: str, data: bytes) -> bytes:
    """Return one event as this format's clients expect it: with its name.

    A provider's JSON may have come in several lines; a line break in it means no more than a space.
    """
    return b"event: " + kind.encode() + b"\ndata: " + join_lines(data) + b"\n\n"


def render_event(kind: str, fields: Mapping[str, object]) -> bytes:
    """Return one event of our own."""
    return named_event(kind, encoder.encode({"type": kind, **fields}))
