"""Builds a complete response from the events of a stream. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.canonical.blocks import (
    Block,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.events import (
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import Usage

_logprobs: Final = msgspec.json.Decoder(dict[str, list[msgspec.Raw] | None])


class ResponseBuilder:
    """The response so far."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.upstream_id: str | None = None
        self._blocks: dict[tuple[int, int], _BlockBuilder] = {}
        self._finished: dict[int, ChoiceFinished] = {}

    def add(self, event: CanonicalEvent) -> None:
        """Add an event."""
        if isinstance(event, StreamStarted):
            self.upstream_id = event.upstream_id
        elif isinstance(event, UsageReported):
            self.usage = event.usage
        elif isinstance(event, ChoiceFinished):
            self._finished[event.choice] = event
        elif not isinstance(event, BlockEnded):
            self._blocks.setdefault((event.choice, event.block), _BlockBuilder()).add(event)

    def block(self, choice: int, block: int) -> Block:
        """Return a block with its content so far."""
        return self._blocks[choice, block].build()

    def build(self) -> CanonicalResponse:
        """Return the response; a choice without a finish reason has failed."""
        blocks: dict[int, list[_BlockBuilder]] = {number: [] for number in self._finished}
        for (choice, _), block in sorted(self._blocks.items()):
            blocks.setdefault(choice, []).append(block)
        return CanonicalResponse(
            choices=tuple(self._choice(number, own) for number, own in sorted(blocks.items())),
            usage=self.usage,
            upstream_id=self.upstream_id,
        )

    def _choice(self, number: int, own: Sequence[_BlockBuilder]) -> Choice:
        end = self._finished.get(number, ChoiceFinished(number, "error"))
        return Choice(
            blocks=tuple(block.build() for block in own),
            finish_reason=end.finish_reason,
            native_finish_reason=end.native_finish_reason,
            stop_sequence=end.stop_sequence,
            logprobs=_joined([each for block in own for each in block.logprobs]),
            index=number,
        )


class _BlockBuilder:
    """One block; its first event determines its kind."""

    def __init__(self) -> None:
        self.logprobs: list[msgspec.Raw] = []
        self._text: list[str] = []
        self._kind: type[Block] = TextBlock
        self._tool: ToolCallStarted | None = None
        self._proof: ReasoningSignature | None = None
        self._is_summary = False

    def add(self, event: object) -> None:
        if isinstance(event, TextDelta):
            self._text.append(event.text)
            if event.logprobs is not None:
                self.logprobs.append(event.logprobs)
        elif isinstance(event, RefusalDelta):
            self._kind = RefusalBlock
            self._text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._kind = ReasoningBlock
            self._text.append(event.text)
            self._is_summary = event.is_summary
        elif isinstance(event, ReasoningSignature):
            self._kind = ReasoningBlock
            self._proof = event
        elif isinstance(event, ToolCallStarted):
            self._tool = event
        elif isinstance(event, ToolCallDelta):
            self._text.append(event.arguments)

    def build(self) -> Block:
        text = "".join(self._text)
        if self._tool is not None:
            return ToolCall(self._tool.id, self._tool.name, text)
        if self._kind is RefusalBlock:
            return RefusalBlock(text)
        if self._kind is ReasoningBlock:
            return self._reasoning(text)
        return TextBlock(text)

    def _reasoning(self, text: str) -> ReasoningBlock:
        proof = self._proof or ReasoningSignature(0, 0)
        return ReasoningBlock(
            text=text,
            is_summary=self._is_summary,
            signature=proof.signature,
            encrypted=proof.encrypted,
            id=proof.id,
            format=proof.format,
        )


def _joined(pieces: list[msgspec.Raw]) -> msgspec.Raw | None:
    """Return the log-probabilities of a choice, joined from those of its deltas."""
    if not pieces:
        return None
    joined: dict[str, list[msgspec.Raw] | None] = {"content": None, "refusal": None}
    for piece in pieces:
        for name, tokens in _logprobs.decode(piece).items():
            before = joined.get(name)
            if before is None:
                joined[name] = tokens
            else:
                before += tokens or ()
    return msgspec.Raw(msgspec.json.encode(joined))
