"""A whole reply in no one's format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tollhouse.inference.formats.canonical.blocks import Block, RedactedStruct

if TYPE_CHECKING:
    from msgspec import Raw

    from tollhouse.accounting.types import Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class Choice(RedactedStruct, frozen=True):
    """One answer."""

    blocks: tuple[Block, ...]
    """Of kinds Text, Refusal, Reasoning and ToolCall, in the order in which they were said."""
    finish_reason: FinishReason
    native_finish_reason: str | None = None
    """In the provider's word."""
    stop_sequence: str | None = None
    """Which of the stop sequences ended it, where the provider tells."""
    logprobs: Raw | None = None
    """The chat format's object: `{content: [...], refusal: ...}`."""
    index: int = 0


class CanonicalResponse(RedactedStruct, frozen=True):
    """What a provider answered."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    """None where the provider reported none that can be used."""
    upstream_id: str | None = None
    service_tier: str | None = None
