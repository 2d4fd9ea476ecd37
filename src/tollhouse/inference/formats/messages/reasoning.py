"""Converts reasoning from and to `thinking` and `redacted_thinking`, native or packed.

    Anthropic's reasoning         <->  thinking{thinking, signature}  or  redacted_thinking{data}
    another provider's reasoning  <->  thinking{thinking, signature: the packed block}

Source: https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.blocks import ReasoningBlock
from tollhouse.inference.formats.canonical.reasoning import ANTHROPIC, pack, unpack
from tollhouse.inference.formats.fields import Fields
from tollhouse.inference.formats.raw_json import raw

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK: Final = pack(ReasoningBlock()).partition(".")[0].encode() + b"."
"""The prefix of every packed block."""


class _SignedBlock(msgspec.Struct):
    type: str
    signature: str | None = None
    data: str | None = None


_signed_block = msgspec.json.Decoder(_SignedBlock)
_messages = msgspec.json.Decoder(list[Fields])
_content = msgspec.json.Decoder(list[Raw] | str)


def parse_thinking(text: str, signature: str) -> ReasoningBlock:
    """Return the canonical block of a `thinking` block."""
    native = ReasoningBlock(text=text, signature=signature or None, format=ANTHROPIC)
    return _unpacked(signature) or native


def parse_redacted(data: str) -> ReasoningBlock:
    """Return the canonical block of a `redacted_thinking` block."""
    return _unpacked(data) or ReasoningBlock(encrypted=data, format=ANTHROPIC)


def render_reasoning(block: ReasoningBlock) -> Mapping[str, object]:
    """Render a block for a client, whichever provider it came from."""
    if block.format != ANTHROPIC:
        return {"type": "thinking", "thinking": block.text, "signature": pack(block)}
    if block.encrypted and not block.text:
        return {"type": "redacted_thinking", "data": block.encrypted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}


def render_provider_reasoning(block: ReasoningBlock) -> Mapping[str, object] | None:
    """Render a block for a provider; None if the provider could not verify it."""
    if block.format != ANTHROPIC or not (block.signature or block.encrypted):
        return None
    if block.signature:
        return {"type": "thinking", "thinking": block.text, "signature": block.signature}
    return None if block.text else render_reasoning(block)


def without_foreign_reasoning(messages: Raw) -> Raw:
    """Return a client's messages without the reasoning of other dialects' providers.

    A client that changes the model within a conversation sends it back; Anthropic rejects a request
    with a signature that is not its own.
    """
    if _MARK not in bytes(messages):
        return messages
    try:
        return raw([_cleaned(message) for message in _messages.decode(messages)])
    except (msgspec.DecodeError, RecursionError):
        # Not a conversation: the provider reports the error.
        return messages


def _cleaned(message: Fields) -> Fields:
    content = _content.decode(message.get("content", Raw(b'""')))
    if isinstance(content, str):
        return message
    return {**message, "content": raw([block for block in content if not _is_foreign(block)])}


def _is_foreign(block: Raw) -> bool:
    try:
        signed = _signed_block.decode(block)
    except (msgspec.DecodeError, RecursionError):
        return False
    kind = {"thinking": signed.signature, "redacted_thinking": signed.data}
    return _unpacked(kind.get(signed.type) or "") is not None


def _unpacked(text: str) -> ReasoningBlock | None:
    try:
        return unpack(text)
    except RecursionError:
        # Not packed by this gateway.
        return None
