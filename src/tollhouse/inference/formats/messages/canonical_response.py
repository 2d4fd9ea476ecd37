"""Converts complete responses from and to the canonical form.

Source: https://docs.anthropic.com/en/api/messages, "response".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.canonical.block_sequencer import arguments_object
from tollhouse.inference.formats.canonical.blocks import (
    Block,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.reasoning import ANTHROPIC
from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice
from tollhouse.inference.formats.messages.passthrough_bodies import decode_message, message_fields
from tollhouse.inference.formats.messages.reasoning import render_reasoning
from tollhouse.inference.formats.messages.usage import parse_usage, read_fields, render_usage
from tollhouse.inference.formats.messages.wire import normalize_finish_reason
from tollhouse.inference.formats.raw_json import NULL, encoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.response import FinishReason
    from tollhouse.inference.formats.messages.wire import ContentBlock
    from tollhouse.inference.types import ReplyIdentity

_STOP_REASONS: Final[Mapping[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_TIERS: Final = {"standard": "default"}
"""Anthropic's names of the served tier to the common names."""
_SHOWN_TIERS: Final = {"default": "standard", "standard": "standard", "priority": "priority"}
_text = msgspec.json.Decoder(str)


def stop_reason(reason: FinishReason, stop_sequence: str | None, *, refused: bool) -> str | None:
    """Return the format's stop reason; None for a failed response."""
    if refused:
        return "refusal"
    if reason == "stop" and stop_sequence is not None:
        return "stop_sequence"
    return _STOP_REASONS.get(reason)


def render_response(reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge) -> bytes:
    """Return the client's body, with the first choice only."""
    choice = reply.choices[0]
    blocks = [rendered for block in choice.blocks if (rendered := _render_block(block)) is not None]
    refused = any(isinstance(block, RefusalBlock) for block in choice.blocks)
    reason = stop_reason(choice.finish_reason, choice.stop_sequence, refused=refused)
    usage = render_usage(charge)
    usage["service_tier"] = _SHOWN_TIERS.get(reply.service_tier or "")
    ours: dict[str, object] = {
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": choice.stop_sequence if reason == "stop_sequence" else None,
        "usage": usage,
    }
    return encoder.encode(message_fields(identity, {}) | ours)


def _render_block(block: Block) -> Mapping[str, object] | None:
    if isinstance(block, (TextBlock, RefusalBlock)):
        # Clients must not send empty text back.
        return {"type": "text", "text": block.text} if block.text else None
    if isinstance(block, ReasoningBlock):
        return render_reasoning(block)
    if isinstance(block, ToolCall):
        return {
            "type": "tool_use",
            "id": block.id,
            "name": block.name,
            "input": arguments_object(block.arguments),
        }
    return None


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a provider's complete response.

    Raises:
        MalformedResponse: The body is not a message.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    _, message = decode_message(body)
    usage = read_fields(message.usage)
    blocks = (parse_block(block) for block in message.content or ())
    choice = Choice(
        blocks=tuple(block for block in blocks if block is not None),
        finish_reason=normalize_finish_reason(message.stop_reason or ""),
        native_finish_reason=message.stop_reason,
        stop_sequence=message.stop_sequence,
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=parse_usage(usage),
        upstream_id=message.id,
        service_tier=_served_tier(usage.get("service_tier", NULL)),
    )


def parse_block(block: ContentBlock) -> Block | None:
    """Convert a block; None if it has no canonical form or is empty."""
    if block.type == "text":
        return TextBlock(block.text) if block.text else None
    if block.type == "tool_use":
        return ToolCall(block.id or "", block.name or "", arguments_text(block))
    if block.type == "thinking":
        signature = block.signature or None
        return ReasoningBlock(text=block.thinking or "", signature=signature, format=ANTHROPIC)
    if block.type == "redacted_thinking":
        return ReasoningBlock(encrypted=block.data or "", format=ANTHROPIC)
    return None


def arguments_text(block: ContentBlock) -> str:
    """Return a tool call's arguments; `{}` if there are none."""
    return "{}" if block.input == NULL else bytes(block.input).decode()


def _served_tier(tier: Raw) -> str | None:
    try:
        name = _text.decode(tier)
    except msgspec.DecodeError:
        return None
    return _TIERS.get(name, name)
