"""A stream in no one's format.

    Started? (TextDelta | RefusalDelta | ReasoningDelta | ReasoningProof | ToolStarted | ToolDelta
              | BlockEnded)* Finished Reported?

A reader turns one dialect's events into these, a writer turns these into one format's. A block is
named by `choice` and `block`: readers number a choice's blocks from 0, in the order in which they
begin, with a new number whenever the kind changes. `BlockEnded` comes where the dialect says so,
and then before the next block begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.canonical.blocks import RedactedStruct

if TYPE_CHECKING:
    from msgspec import Raw

    from tollhouse.accounting.types import Usage
    from tollhouse.inference.formats.canonical.response import FinishReason


class StreamStarted(RedactedStruct, frozen=True):
    """The provider has begun."""

    upstream_id: str | None = None
    usage: Usage | None = None
    """What it says at the start: the input is counted, the output is not."""


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
    """Signature or encryption of a reasoning block; at its end, or alone."""

    choice: int
    block: int
    signature: str | None = None
    encrypted: str | None = None
    id: str | None = None
    format: str | None = None


class ToolCallStarted(RedactedStruct, frozen=True):
    """A tool is called."""

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
    """What the provider says it used; a later report replaces an earlier one."""

    usage: Usage


BlockDelta = (
    TextDelta | RefusalDelta | ReasoningDelta | ReasoningSignature | ToolCallStarted | ToolCallDelta
)
CanonicalEvent = StreamStarted | BlockDelta | BlockEnded | ChoiceFinished | UsageReported
