"""Schemas of the parts of the messages format that the gateway decodes.

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
"""Anthropic requires a limit; used if neither the client nor the catalogue has one."""

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
    """Return the normalized finish reason; an unknown stop reason counts as `stop`."""
    return _FINISH_REASONS.get(native, "stop")


class ContentBlock(msgspec.Struct):
    """A block of a response, or the start of one; its fields depend on its type."""

    type: str
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Raw = NULL


class MessagesDelta(msgspec.Struct):
    """The delta of a block, or of the message at its end."""

    type: str | None = None
    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageObject(msgspec.Struct):
    """A complete message, or the one at the start of a stream."""

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


def output_bytes(part: ContentBlock | MessagesDelta) -> int:
    """Return the bytes of output in a block or a delta."""
    texts: list[str | None] = [part.text, part.thinking]
    if isinstance(part, MessagesDelta):
        texts.append(part.partial_json)
    elif part.input not in _NO_INPUT:
        texts.append(bytes(part.input).decode())
    return sum(len(text.encode()) for text in texts if text)


event_decoder: Final = msgspec.json.Decoder(MessagesEvent)
message_decoder: Final = msgspec.json.Decoder(MessageObject)


def named_event(kind: str, data: bytes) -> bytes:
    """Return an event with its name, which clients of this format expect.

    A provider's JSON may span several lines; its line breaks become spaces.
    """
    return b"event: " + kind.encode() + b"\ndata: " + join_lines(data) + b"\n\n"


def render_event(kind: str, fields: Mapping[str, object]) -> bytes:
    """Return an event of the gateway's own."""
    return named_event(kind, encoder.encode({"type": kind, **fields}))
