"""The provider's side of the chat format: its replies and streams in canonical form. Pure.

Source: https://platform.openai.com/docs/api-reference/chat/create, .../chat/object and
.../chat/streaming, and the fields in which other servers of this dialect send reasoning
(`reasoning_content`, `reasoning`, `reasoning_details`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import ProviderFormat, StreamDecoder
from tollhouse.inference.formats.canonical.types import (
    COMMON_PARAMETERS,
    SAMPLING,
    Block,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    ChoiceFinished,
    FinishReason,
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
from tollhouse.inference.formats.chat_completions.calls import (
    CallOrder,
    CallPart,
    CallPiece,
    Function,
    Pieces,
    pieces_in,
    whole_calls,
)
from tollhouse.inference.formats.chat_completions.provider_request import render_request
from tollhouse.inference.formats.chat_completions.reasoning import (
    ContentPart,
    ReasoningDetail,
    parse_details,
    parse_extra,
    parse_thinking_blocks,
    thinking_in,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.provider_errors import (
    error_in_place_of_reply,
    not_of_dialect,
    raise_error_within,
    read_error,
)
from tollhouse.inference.formats.tool_names import OPENAI_NAMES
from tollhouse.inference.formats.usage import (
    Counts,
    find_counts,
    later,
    may_tell_usage,
    usage_of,
)
from tollhouse.inference.formats.wire import (
    NULL,
    AnyId,
    Fields,
    fields_decoder,
    given,
    id_text,
    is_done,
    replace_invalid_text,
    try_decode,
)
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class _Message(Struct):
    """A complete message, or the delta of a chunk."""

    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    tool_calls: Pieces = None
    function_call: Function | None = None
    """As some servers still write a call: the format's first way, of one call."""
    thinking_blocks: list[ContentPart] | None = None
    """Of LiteLLM: thoughts as Anthropic's models sign them."""
    extra_content: Raw = NULL
    provider_specific_fields: Raw = NULL
    usage: Raw = NULL

    @property
    def extra(self) -> Fields:
        """What only its maker can read, of a text."""
        given = {} if self.extra_content == NULL else {"extra_content": self.extra_content}
        if b"thought_signature" in bytes(self.provider_specific_fields):
            given["provider_specific_fields"] = self.provider_specific_fields
        return given

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.refusal or self.calls)

    @property
    def is_silent(self) -> bool:
        thinks = (
            self.reasoning
            or self.reasoning_content
            or self.reasoning_details
            or self.thinking_blocks
        )
        return self.is_empty and not (thinks or self.content)

    @property
    def calls(self) -> list[CallPiece]:
        """The calls, or pieces of them."""
        legacy = self.function_call
        return pieces_in(self.tool_calls) or (
            [] if legacy is None else [CallPiece(function=legacy)]
        )

    @property
    def is_text(self) -> bool:
        """Whether it holds text and nothing else."""
        return bool(
            self.content
            and self.text
            and not self.refusal
            and not self.calls
            and not self.reasoning
            and not self.reasoning_content
            and not self.reasoning_details
            and not isinstance(self.content, list)
            and not self.extra
            and not self.thinking_blocks
        )

    @property
    def reasoning_blocks(self) -> list[ReasoningBlock]:
        if found := parse_details(self.reasoning_details or ()):
            return [replace(block, field="reasoning_details") for block in found]
        if found := parse_thinking_blocks(self.thinking_blocks or ()):
            return found
        if self.reasoning_content:
            return [ReasoningBlock(self.reasoning_content, field="reasoning_content")]
        if self.reasoning:
            return [ReasoningBlock(self.reasoning, field="reasoning")]
        parts = self.content if isinstance(self.content, list) else ()
        return thinking_in(parts)


class _Choice(Struct):
    index: int | None = None
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None
    logprobs: Raw = NULL
    usage: Raw = NULL

    @property
    def tells_usage(self) -> bool:
        said = self.delta or self.message
        return self.usage != NULL or (said is not None and said.usage != NULL)


class _Response(Struct):
    id: AnyId = None
    choices: list[_Choice] | None = None
    usage: Raw = NULL
    object: str | None = None
    service_tier: str | None = None

    def tells_usage(self, data: bytes) -> bool:
        """Tell whether there may be a usage: here, in a choice, or elsewhere in what was read."""
        return (
            self.usage != NULL
            or any(each.tells_usage for each in self.choices or ())
            or may_tell_usage(data)
        )


_reply: Final = msgspec.json.Decoder(_Response)


def _read(data: bytes) -> _Response:
    if data[:2] == b"[{":
        raise read_error(data)
    try:
        read = _reply.decode(replace_invalid_text(data))
    except (msgspec.DecodeError, RecursionError):
        raise not_of_dialect(data, "the reply is not of the chat dialect") from None
    if b'"error"' in data or b'"base_resp"' in data:
        raise_error_within(fields_decoder.decode(replace_invalid_text(data)))
    if read.object == "error":
        raise read_error(data)
    if not read.choices and (error := error_in_place_of_reply(data)):
        raise error
    return read


def _counts(read: _Response, data: bytes) -> Counts:
    if not read.tells_usage(data):
        return {}
    return find_counts(fields_decoder.decode(replace_invalid_text(data)))


def _finish_reason(native: str | None, *, called: bool) -> FinishReason:
    return normalize_finish_reason(native, called=called) or ("tool_calls" if called else "stop")


# Complete responses


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response; raises `MalformedResponse` and `ErrorEvent`."""
    read = _read(body)
    if not read.choices:
        raise MalformedResponse("the reply has no choices")
    return CanonicalResponse(
        choices=tuple(_whole_choice(each, index) for index, each in enumerate(read.choices)),
        usage=usage_of(_counts(read, body)),
        upstream_id=id_text(read.id),
        service_tier=read.service_tier,
    )


def _whole_choice(choice: _Choice, position: int) -> Choice:
    if choice.message is None:
        raise MalformedResponse("a choice has no message")
    blocks = tuple(_blocks(choice.message))
    return Choice(
        blocks=blocks,
        finish_reason=_finish_reason(
            choice.finish_reason, called=any(isinstance(each, ToolCall) for each in blocks)
        ),
        native_finish_reason=choice.finish_reason,
        logprobs=given(choice.logprobs),
        index=position if choice.index is None else choice.index,
    )


def _blocks(message: _Message) -> Iterator[Block]:
    yield from message.reasoning_blocks
    if message.text:
        yield TextBlock(message.text)
    if message.refusal:
        yield RefusalBlock(message.refusal)
    if message.extra:
        yield parse_extra(message.extra)
    for call in whole_calls(message.calls):
        if call.extra:
            yield parse_extra(call.extra, call.call_id)
        yield ToolCall(call.call_id, call.name or "", call.arguments)


# Streams


class ChatStreamDecoder(StreamDecoder):
    """Decodes chunks."""

    def __init__(self) -> None:
        self._begun = False
        self._choices: dict[int, _ChoiceDecoder] = {}
        self._counts: Counts = {}

    @property
    def complete(self) -> bool:
        """Whether every choice that began has finished; after `[DONE]`: any output is enough."""
        choices = self._choices.values()
        if self.done:
            return any(each.has_spoken for each in choices)
        return bool(choices) and all(each.finished for each in choices)

    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]:
        if is_done(data):
            self.done = True
            ends = (each.end() for each in self._choices.values() if not each.finished)
            return tuple(event for end in ends for event in end)
        read = _read(data)
        choices = read.choices
        if self._begun and choices and len(choices) == 1 and not read.tells_usage(data):
            return tuple(self._choice(choices[0], 0))
        return tuple(self._events(read, data))

    def _choice(self, choice: _Choice, position: int) -> Iterable[CanonicalEvent]:
        index = position if choice.index is None else choice.index
        decoder = self._choices.get(index)
        if decoder is None:
            order = CallOrder(self.tool_names.__contains__)
            decoder = self._choices[index] = _ChoiceDecoder(index, order)
        return decoder.read(choice)

    def _after_end(self, data: bytes) -> Iterator[CanonicalEvent]:
        return self._usage(find_counts(try_decode(fields_decoder, data) or {}))

    def _events(self, read: _Response, data: bytes) -> Iterator[CanonicalEvent]:
        if not self._begun:
            self._begun = True
            yield StreamStarted(id_text(read.id))
        for position, choice in enumerate(read.choices or ()):
            yield from self._choice(choice, position)
        yield from self._usage(_counts(read, data))

    def _usage(self, counts: Counts) -> Iterator[CanonicalEvent]:
        if counts:
            self._counts = later(self._counts, counts)
            if (usage := usage_of(self._counts)) is not None:
                yield UsageReported(usage)


class _ChoiceDecoder:
    """Numbers a choice's blocks: a new one whenever the kind changes, and one for each call."""

    def __init__(self, index: int, order: CallOrder) -> None:
        self.finished = False
        self._index = index
        self._blocks = 0
        """How many have begun."""
        self._kind: type[CanonicalEvent] | None = None
        self._order = order
        self._calls: dict[int, int] = {}
        """The blocks of calls, by their numbers."""
        self._by_messages = False
        """Messages stand in place of the deltas."""

    @property
    def has_spoken(self) -> bool:
        return self.finished or self._blocks > 0

    def read(self, choice: _Choice) -> Iterable[CanonicalEvent]:
        if choice.message is not None:
            choice = self._without_repetition(choice)
        delta = choice.delta
        if delta is not None and delta.is_text and not choice.finish_reason:
            return (
                TextDelta(self._index, self._block(TextDelta), delta.text, given(choice.logprobs)),
            )
        return self._events(choice)

    def _without_repetition(self, choice: _Choice) -> _Choice:
        """Return a choice whose delta is what a message says: in its place, or calls beside it."""
        said = choice.message
        if said is None or not (choice.delta is None or choice.delta.is_silent):
            return choice
        if self._blocks and not self._by_messages:
            called = _Message(tool_calls=said.tool_calls, function_call=said.function_call)
            said = _Message() if self._order else called
        else:
            self._by_messages = True
        return replace(choice, delta=said)

    def _events(self, choice: _Choice) -> Iterator[CanonicalEvent]:
        if choice.delta is not None and not (self.finished and choice.delta.is_empty):
            yield from self._delta(choice.delta, choice.logprobs)
        # Some servers send an empty reason with every chunk.
        if choice.finish_reason and not self.finished:
            self.finished = True
            yield from self._tool_calls(self._order.end())
            reason = _finish_reason(choice.finish_reason, called=bool(self._calls))
            yield ChoiceFinished(self._index, reason, choice.finish_reason)

    def end(self) -> Iterator[CanonicalEvent]:
        """Return the end of a choice that spoke, where the provider's stream has none of it."""
        if self._order.complete or (self._blocks and not self._order):
            self.finished = True
            yield from self._tool_calls(self._order.end())
            yield ChoiceFinished(self._index, "tool_calls" if self._calls else "stop")

    def _delta(self, message: _Message, logprobs: Raw) -> Iterator[CanonicalEvent]:
        for reasoning in message.reasoning_blocks:
            yield from self._reasoning(reasoning)
        if message.text or logprobs != NULL:
            yield TextDelta(self._index, self._block(TextDelta), message.text, given(logprobs))
        if message.refusal:
            yield RefusalDelta(self._index, self._block(RefusalDelta), message.refusal)
        if message.extra:
            yield from self._reasoning(parse_extra(message.extra))
        if calls := message.calls:
            yield from self._tool_calls(part for _, part in self._order.read(calls))

    def _reasoning(self, reasoning: ReasoningBlock) -> Iterator[CanonicalEvent]:
        if reasoning.field == "extra_content":
            self._kind = None
        block = self._block(ReasoningDelta)
        if reasoning.text:
            yield ReasoningDelta(
                self._index, block, reasoning.text, reasoning.is_summary, reasoning.field
            )
        if reasoning.signature or reasoning.encrypted:
            yield ReasoningSignature(
                self._index,
                block,
                reasoning.signature,
                reasoning.encrypted,
                reasoning.id,
                reasoning.format,
                reasoning.field,
            )
            # Reasoning after the signature is another block.
            self._kind = None

    def _tool_calls(self, parts: Iterable[CallPart]) -> Iterator[CanonicalEvent]:
        for part in parts:
            if part.extra:
                yield from self._reasoning(parse_extra(part.extra, part.call_id))
            if part.id is not None:
                block = self._calls[part.number] = self._block(ToolCallStarted)
                self._kind = None
                yield ToolCallStarted(self._index, block, part.id, part.name or "")
            if part.arguments:
                yield ToolCallDelta(self._index, self._calls[part.number], part.arguments)

    def _block(self, kind: type[CanonicalEvent]) -> int:
        if kind is not self._kind:
            self._kind = kind
            self._blocks += 1
        return self._blocks - 1


CHAT_PROVIDER: Final = ProviderFormat(
    dialect=Dialect.CHAT,
    supported_parameters=COMMON_PARAMETERS.union(
        SAMPLING, {"stop", "verbosity", "logprobs", "top_logprobs", "choices", "metadata"}
    ),
    canonical_names={
        "response_format": "output",
        "reasoning_effort": "thinking",
        "n": "choices",
        # The provider accepts one of the two.
        "max_tokens": "",
        "max_completion_tokens": "",
    },
    render_request=render_request,
    parse_response=parse_response,
    stream_decoder=ChatStreamDecoder,
    tool_names=OPENAI_NAMES,
)
