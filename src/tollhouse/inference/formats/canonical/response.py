"""The canonical response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tollhouse.inference.formats.canonical.blocks import Block, RedactedStruct

if TYPE_CHECKING:
    from msgspec import Raw

    from tollhouse.accounting.types import Usage

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "error"]


class Choice(RedactedStruct, frozen=True):
    """One choice of a response."""

    blocks: tuple[Block, ...]
    """TextBlock, RefusalBlock, ReasoningBlock and ToolCall, in the order of the output."""
    finish_reason: FinishReason
    native_finish_reason: str | None = None
    """As the provider reported it."""
    stop_sequence: str | None = None
    """The stop sequence that ended the choice, if the provider reports it."""
    logprobs: Raw | None = None
    """The chat format's object: `{content: [...], refusal: ...}`."""
    index: int = 0


class CanonicalResponse(RedactedStruct, frozen=True):
    """A response in canonical form."""

    choices: tuple[Choice, ...]
    usage: Usage | None = None
    """None if the provider reported no usable usage."""
    upstream_id: str | None = None
    service_tier: str | None = None
