"""Orders the events of a canonical stream, and builds a complete response from them. Pure.

    sequencer.feed(event) -> events: of the first choice only; each block contiguous and
                             followed by its `BlockEnded`, and all before `ChoiceFinished`

Chat providers may begin a second tool call before the first is finished, and do not mark the end of
a call. A call is therefore complete once its arguments are a JSON object and another block begins;
events of later blocks are held back until then.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical import (
    Block,
    BlockDelta,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.tools import ArgumentsScanner
from tollhouse.inference.formats.wire import fields_decoder, raw, try_decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Usage
    from tollhouse.inference.formats.canonical import ReasoningField


class BlockSequencer:
    """Orders the blocks of one stream."""

    def __init__(self) -> None:
        self._open: int | None = None
        self._arguments: ArgumentsScanner | None = None
        """The arguments of the open block, if it is a tool call."""
        self._waiting = OrderedDict[int, list[BlockDelta | BlockEnded]]()
        self._ended: set[int] = set()
        self._finished = False

    def feed(self, event: CanonicalEvent) -> Sequence[CanonicalEvent]:
        """Return the events that can be sent now; raises `MalformedResponse` after an end."""
        if (
            isinstance(event, TextDelta)
            and event.block == self._open
            and not event.choice
            and not self._finished
        ):
            return (event,)
        if isinstance(event, (StreamStarted, UsageReported)):
            return (event,)
        ends = isinstance(event, BlockEnded) and event.block in self._ended
        if event.choice or ends:
            return ()  # of another choice, or of a block that ended where the next one began
        if self._finished:
            raise MalformedResponse("the reply goes on after its end")
        if isinstance(event, ChoiceFinished):
            return self._finish(event)
        waiting = self._waiting.get(event.block)
        if event.block in self._ended or (waiting and isinstance(waiting[-1], BlockEnded)):
            raise MalformedResponse("a part of the reply goes on after its end")
        if event.block == self._open:
            return self._take(event)
        self._waiting.setdefault(event.block, []).append(event)
        return self._advance()

    def _take(self, event: BlockDelta | BlockEnded) -> list[CanonicalEvent]:
        """Return the events of the open block."""
        if isinstance(event, BlockEnded):
            return [*self._end(), *self._advance()]
        if isinstance(event, ToolCallStarted):
            self._arguments = ArgumentsScanner()
        elif isinstance(event, ToolCallDelta) and self._arguments is not None:
            self._arguments.add(event.arguments)
        return [event]

    def _advance(self) -> list[CanonicalEvent]:
        """Begin the waiting blocks whose predecessors are complete."""
        written: list[CanonicalEvent] = []
        while self._waiting and self._is_complete():
            written += self._next()
        return written

    def _next(self) -> list[CanonicalEvent]:
        written = self._end()
        self._open, waiting = self._waiting.popitem(last=False)
        self._arguments = None
        for event in waiting:
            # A block's own end is its last event.
            written += self._end() if isinstance(event, BlockEnded) else self._take(event)
        return written

    def _is_complete(self) -> bool:
        return self._open is None or self._arguments is None or self._arguments.is_complete()

    def _end(self) -> list[CanonicalEvent]:
        if self._open is None:
            return []
        ended = BlockEnded(0, self._open)
        self._ended.add(self._open)
        self._open = self._arguments = None
        return [ended]

    def _finish(self, event: ChoiceFinished) -> list[CanonicalEvent]:
        written: list[CanonicalEvent] = []
        while self._waiting:
            written += self._next()
        self._finished = True
        return [*written, *self._end(), event]


def arguments_object(arguments: str) -> Mapping[str, msgspec.Raw]:
    """Return a tool call's arguments as an object, for formats that require one.

    Empty arguments are an empty object; any other text is kept in the field `input`, so that
    nothing of the model's output is lost.
    """
    found = try_decode(fields_decoder, arguments)
    if found is None and arguments.strip():
        return {"input": raw(arguments)}
    return found or {}


# Building a response

_logprobs = msgspec.json.Decoder(dict[str, list[msgspec.Raw] | None])


class ResponseBuilder:
    """The response so far."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.upstream_id: str | None = None
        self._blocks: dict[tuple[int, int], _BlockBuilder] = {}
        self._finished: dict[int, ChoiceFinished] = {}

    def add(self, event: CanonicalEvent) -> None:
        """Add an event."""
        if isinstance(event, TextDelta) and (event.choice, event.block) in self._blocks:
            self._blocks[event.choice, event.block].add(event)
        elif isinstance(event, StreamStarted):
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
        self._texts: list[str] = []
        self._block: Block = TextBlock("")

    def add(self, event: BlockDelta) -> None:
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
            if event.logprobs is not None:
                self.logprobs.append(event.logprobs)
        elif isinstance(event, ToolCallStarted):
            self._block = ToolCall(event.id, event.name, "")
        elif isinstance(event, ToolCallDelta):
            self._texts.append(event.arguments)
        elif isinstance(event, ReasoningSignature):
            self._block = ReasoningBlock(
                is_summary=isinstance(self._block, ReasoningBlock) and self._block.is_summary,
                signature=event.signature,
                encrypted=event.encrypted,
                id=event.id,
                format=event.format,
                field=event.field or self._field,
            )
        else:
            self._texts.append(event.text)
            self._note(event)

    @property
    def _field(self) -> ReasoningField | None:
        return self._block.field if isinstance(self._block, ReasoningBlock) else None

    def _note(self, event: RefusalDelta | ReasoningDelta) -> None:
        if isinstance(event, RefusalDelta):
            self._block = RefusalBlock("")
        elif not isinstance(self._block, ReasoningBlock):
            self._block = ReasoningBlock(is_summary=event.is_summary, field=event.field)
        elif self._block.is_summary != event.is_summary:
            self._block = replace(self._block, is_summary=event.is_summary)

    def build(self) -> Block:
        text = "".join(self._texts)
        if isinstance(self._block, ToolCall):
            return replace(self._block, arguments=text)
        return replace(self._block, text=text)


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
    return raw(joined)
