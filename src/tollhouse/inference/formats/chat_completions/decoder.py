"""Decodes the chat dialect's responses and streams to the canonical form. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/object and .../chat/streaming, and the
fields in which other servers of this dialect send reasoning
(`reasoning_content`, `reasoning`, `reasoning_details`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.blocks import (
    Block,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.events import (
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
from tollhouse.inference.formats.canonical.response import CanonicalResponse, Choice, FinishReason
from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.formats.chat_completions.reasoning import ReasoningDetail, parse_details
from tollhouse.inference.formats.chat_completions.usage import parse_usage
from tollhouse.inference.formats.chat_completions.wire import DONE, normalize_finish_reason
from tollhouse.inference.formats.raw_json import NULL, replace_invalid_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class _Part(Struct):
    text: str = ""


class _Function(Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(Struct):
    """A complete message, or the delta of a chunk."""

    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    tool_calls: list[_Call] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.refusal or self.tool_calls)

    @property
    def reasoning_blocks(self) -> list[ReasoningBlock]:
        if found := parse_details(self.reasoning_details or ()):
            return found
        text = self.reasoning or self.reasoning_content
        return [ReasoningBlock(text)] if text else []


class _Choice(Struct):
    index: int | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    logprobs: Raw = NULL


class _Response(Struct):
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = NULL
    error: Raw = NULL
    service_tier: str | None = None


_reply: Final = msgspec.json.Decoder(_Response)


def _decode(data: bytes) -> _Response:
    try:
        read = _reply.decode(replace_invalid_utf8(data))
    except (msgspec.DecodeError, RecursionError):
        message = "the reply is not of the chat dialect"
        raise MalformedResponse(message) from None
    if read.error != NULL:
        raise parse_error_event(read.error)
    return read


def _finish_reason(native: str | None, *, called: bool) -> FinishReason:
    """Return the normalized reason; some servers send "stop" with a tool call."""
    reason = normalize_finish_reason(native) or "stop"
    return cast("FinishReason", "tool_calls" if called and reason == "stop" else reason)


# Complete responses


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response.

    Raises:
        MalformedResponse: The body is not a chat completion.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    read = _decode(body)
    if not read.choices:
        message = "the reply has no choices"
        raise MalformedResponse(message)
    return CanonicalResponse(
        choices=tuple(_whole_choice(each, index) for index, each in enumerate(read.choices)),
        usage=parse_usage(read.usage),
        upstream_id=read.id,
        service_tier=read.service_tier,
    )


def _whole_choice(choice: _Choice, position: int) -> Choice:
    if choice.message is None:
        message = "a choice has no message"
        raise MalformedResponse(message)
    blocks = tuple(_blocks(choice.message))
    return Choice(
        blocks=blocks,
        finish_reason=_finish_reason(
            choice.finish_reason, called=any(isinstance(each, ToolCall) for each in blocks)
        ),
        native_finish_reason=choice.finish_reason,
        logprobs=None if choice.logprobs == NULL else choice.logprobs,
        index=position if choice.index is None else choice.index,
    )


def _blocks(message: _Message) -> Iterator[Block]:
    yield from message.reasoning_blocks
    if message.text:
        yield TextBlock(message.text)
    if message.refusal:
        yield RefusalBlock(message.refusal)
    for number, call in enumerate(message.tool_calls or ()):
        function = call.function or _Function()
        yield ToolCall(call.id or f"call_{number}", function.name or "", function.arguments or "")


# Streams


class ChatStreamDecoder:
    """Implements `formats.canonical.ports.StreamDecoder`."""

    def __init__(self) -> None:
        self.done = False
        self._begun = False
        self._choices: dict[int, _ChoiceDecoder] = {}

    @property
    def complete(self) -> bool:
        """Whether every choice that began has finished; after `[DONE]`: any output is enough."""
        choices = self._choices.values()
        if self.done:
            return any(each.has_spoken for each in choices)
        return bool(choices) and all(each.finished for each in choices)

    def feed(self, data: bytes) -> Sequence[CanonicalEvent]:
        """Consume the data of one provider event; return the canonical events."""
        if self.done or not data:
            return ()
        if data == DONE:
            self.done = True
            return ()
        return tuple(self._events(_decode(data)))

    def _events(self, read: _Response) -> Iterator[CanonicalEvent]:
        if not self._begun:
            self._begun = True
            yield StreamStarted(read.id)
        for position, choice in enumerate(read.choices or ()):
            index = position if choice.index is None else choice.index
            decoder = self._choices.setdefault(index, _ChoiceDecoder(index))
            yield from decoder.read(choice)
        usage = parse_usage(read.usage)
        if usage is not None:
            yield UsageReported(usage)


class _ChoiceDecoder:
    """Numbers a choice's blocks: a new one whenever the kind changes, and one for each call."""

    def __init__(self, index: int) -> None:
        self.finished = False
        self._index = index
        self._blocks = 0
        """How many have begun."""
        self._kind: type[CanonicalEvent] | None = None
        self._calls: dict[int, int] = {}
        self._ids: dict[int, str] = {}

    @property
    def has_spoken(self) -> bool:
        """Whether the choice has any output or a finish reason."""
        return self.finished or self._blocks > 0

    def read(self, choice: _Choice) -> Iterator[CanonicalEvent]:
        if choice.delta is not None and not (self.finished and choice.delta.is_empty):
            yield from self._delta(choice.delta, choice.logprobs)
        # Some servers send an empty reason with every chunk.
        if choice.finish_reason and not self.finished:
            self.finished = True
            reason = _finish_reason(choice.finish_reason, called=bool(self._calls))
            yield ChoiceFinished(self._index, reason, choice.finish_reason)

    def _delta(self, message: _Message, logprobs: Raw) -> Iterator[CanonicalEvent]:
        for reasoning in message.reasoning_blocks:
            yield from self._reasoning(reasoning)
        if message.text or logprobs != NULL:
            given = None if logprobs == NULL else logprobs
            yield TextDelta(self._index, self._block(TextDelta), message.text, given)
        if message.refusal:
            yield RefusalDelta(self._index, self._block(RefusalDelta), message.refusal)
        yield from self._tool_calls(message.tool_calls or ())

    def _reasoning(self, reasoning: ReasoningBlock) -> Iterator[CanonicalEvent]:
        block = self._block(ReasoningDelta)
        if reasoning.text:
            yield ReasoningDelta(self._index, block, reasoning.text, reasoning.is_summary)
        if reasoning.signature or reasoning.encrypted:
            yield ReasoningSignature(
                self._index,
                block,
                reasoning.signature,
                reasoning.encrypted,
                reasoning.id,
                reasoning.format,
            )
            # Reasoning after the signature is another block.
            self._kind = None

    def _tool_calls(self, calls: Iterable[_Call]) -> Iterator[CanonicalEvent]:
        for position, call in enumerate(calls):
            function = call.function or _Function()
            number = self._number(call, position)
            if number not in self._calls:
                block = self._calls[number] = self._block(ToolCallStarted)
                if call.id is not None:
                    self._ids[number] = call.id
                self._kind = None
                yield ToolCallStarted(
                    self._index, block, call.id or f"call_{number}", function.name or ""
                )
            if function.arguments:
                yield ToolCallDelta(self._index, self._calls[number], function.arguments)

    def _number(self, call: _Call, position: int) -> int:
        """Return the number of the call; servers that send no index send each call as a whole."""
        if call.index is None:
            return len(self._calls) if call.id is not None else position
        named = call.function is not None and call.function.name is not None
        if named and call.id is not None and self._ids.get(call.index, call.id) != call.id:
            # Some servers give every call of a turn the same index.
            return len(self._calls)
        return call.index

    def _block(self, kind: type[CanonicalEvent]) -> int:
        if kind is not self._kind:
            self._kind = kind
            self._blocks += 1
        return self._blocks - 1
