"""The events of a canonical stream.

    Started? (TextDelta | RefusalDelta | ReasoningDelta | ReasoningProof | ToolStarted | ToolDelta
              | BlockEnded)* Finished Reported?

A `StreamDecoder` produces these from a dialect's events, a `StreamEncoder` renders them in a
client's format. `choice` and `block` identify a block: decoders number a choice's blocks from 0 in
the order in which they begin, with a new number whenever the kind changes. `BlockEnded` is sent
only for dialects that mark the end of a block, and then before the next block begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.canonical.blocks import RedactedStruct

if TYPE_CHECKING:
    from msgspec import Raw

    from tollhouse.accounting.types import Usage
    from tollhouse.inference.formats.canonical.response import FinishReason


class StreamStarted(RedactedStruct, frozen=True):
    """The provider began the response."""

    upstream_id: str | None = None
    usage: Usage | None = None
    """The usage reported at the start: input tokens only."""


class TextDelta(RedactedStruct, frozen=True):
    """More text."""

    choice: int
    block: int
    text: str
    logprobs: Raw | None = None
    """The chat format's object for these tokens."""


class RefusalDelta(RedactedStruct, frozen=True):
    """More of a refusal."""

    choice: int
    block: int
    text: str


class ReasoningDelta(RedactedStruct, frozen=True):
    """More reasoning text."""

    choice: int
    block: int
    text: str
    is_summary: bool = False


class ReasoningSignature(RedactedStruct, frozen=True):
    """The signature or encrypted content of a reasoning block; at its end, or alone."""

    choice: int
    block: int
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    format: str | None = None


class ToolCallStarted(RedactedStruct, frozen=True):
    """A tool call begins."""

    choice: int
    block: int
    id: str
    name: str


class ToolCallDelta(RedactedStruct, frozen=True):
    """More of a call's arguments."""

    choice: int
    block: int
    arguments: str


class BlockEnded(RedactedStruct, frozen=True):
    """A block is complete."""

    choice: int
    block: int


class ChoiceFinished(RedactedStruct, frozen=True):
    """A choice is complete."""

    choice: int
    finish_reason: FinishReason
    native_finish_reason: str | None = None
    stop_sequence: str | None = None


class UsageReported(RedactedStruct, frozen=True):
    """The usage that the provider reported; a later report replaces an earlier one."""

    usage: Usage


BlockDelta = (
    TextDelta | RefusalDelta | ReasoningDelta | ReasoningSignature | ToolCallStarted | ToolCallDelta
)
CanonicalEvent = StreamStarted | BlockDelta | BlockEnded | ChoiceFinished | UsageReported
