"""Replies of the chat format: a provider's in canonical form, canonical ones for a client. Pure.

    chunk* (usage | error) [DONE]

Each choice of a client's stream begins with its role and ends with its `finish_reason`; later
events of the choice are rejected, so that the stream is always legal.

Source: https://platform.openai.com/docs/api-reference/chat/create, .../chat/object and
.../chat/streaming, the public gateway's additions, and the fields in which other servers of this
dialect send reasoning (`reasoning_content`, `reasoning`, `reasoning_details`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical import (
    ANTHROPIC,
    COMMON_PARAMETERS,
    SAMPLING,
    Block,
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
from tollhouse.inference.formats.chat import (
    decode_reply,
    raise_error_instead,
    render_chunk,
    render_end,
    render_failure,
    render_usage,
    reply_fields,
)
from tollhouse.inference.formats.chat_calls import (
    CallOrder,
    CallPart,
    CallPiece,
    Function,
    Pieces,
    pieces_in,
    render_call,
    whole_calls,
)
from tollhouse.inference.formats.chat_reasoning import (
    ContentPart,
    DetailKind,
    ReasoningDetail,
    parse_details,
    parse_extra,
    parse_thinking_blocks,
    render_detail,
    render_details,
    thinking_in,
)
from tollhouse.inference.formats.chat_requests import parse_canonical_request, render_request
from tollhouse.inference.formats.finish_reasons import final_reason
from tollhouse.inference.formats.proofs import unsigned, wrapped
from tollhouse.inference.formats.provider_errors import raise_error_within
from tollhouse.inference.formats.tools import OPENAI_NAMES
from tollhouse.inference.formats.translation import (
    ClientFormat,
    ProviderFormat,
    StreamDecoder,
    StreamEncoder,
)
from tollhouse.inference.formats.usage import Counts, find_counts, later, may_tell_usage, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    AnyId,
    EventTemplate,
    Fields,
    encoder,
    fields_decoder,
    given,
    id_text,
    is_done,
    raw,
    replace_invalid_text,
    try_decode,
)
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical import BlockDelta
    from tollhouse.inference.formats.translation import TranslationSource
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


# From a provider


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
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    @property
    def calls(self) -> list[CallPiece]:
        """The calls, or pieces of them."""
        return pieces_in(self.tool_calls, self.function_call)

    @property
    def extra(self) -> Fields:
        """What only its maker can read, of a text."""
        given = {} if self.extra_content == NULL else {"extra_content": self.extra_content}
        if b"thought_signature" in bytes(self.provider_specific_fields):
            given["provider_specific_fields"] = self.provider_specific_fields
        return given

    @property
    def thinks(self) -> bool:
        text = self.reasoning or self.reasoning_content
        return bool(text or self.reasoning_details or self.thinking_blocks)

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.refusal or self.calls)

    @property
    def is_silent(self) -> bool:
        return self.is_empty and not (self.thinks or self.content)

    @property
    def is_text(self) -> bool:
        """Whether it holds text and nothing else."""
        if not self.content or isinstance(self.content, list):
            return False
        return not (self.refusal or self.thinks or self.calls or self.extra)

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
        return thinking_in(self.content) if isinstance(self.content, list) else []


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
    read = decode_reply(_reply, data, "the reply is not of the chat dialect")
    if b'"error"' in data or b'"base_resp"' in data:
        raise_error_within(fields_decoder.decode(replace_invalid_text(data)))
    raise_error_instead(data, is_error=read.object == "error", is_empty=not read.choices)
    return read


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response; raises `MalformedResponse` and `ErrorEvent`."""
    read = _read(body)
    if not read.choices:
        raise MalformedResponse("the reply has no choices")
    fields = fields_decoder.decode(replace_invalid_text(body)) if read.tells_usage(body) else {}
    return CanonicalResponse(
        choices=tuple(_whole_choice(each, index) for index, each in enumerate(read.choices)),
        usage=usage_of(find_counts(fields)),
        upstream_id=id_text(read.id),
        service_tier=read.service_tier,
    )


def _whole_choice(choice: _Choice, position: int) -> Choice:
    if choice.message is None:
        raise MalformedResponse("a choice has no message")
    blocks = tuple(_blocks(choice.message))
    called = any(isinstance(each, ToolCall) for each in blocks)
    return Choice(
        blocks=blocks,
        finish_reason=final_reason(choice.finish_reason, called=called),
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
            return any(each.finished or each.blocks for each in choices)
        return bool(choices) and all(each.finished for each in choices)

    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]:
        if is_done(data):
            self.done = True
            ends = (each.end() for each in self._choices.values() if not each.finished)
            return tuple(event for end in ends for event in end)
        read = _read(data)
        events: list[CanonicalEvent] = [] if self._begun else [StreamStarted(id_text(read.id))]
        self._begun = True
        for position, choice in enumerate(read.choices or ()):
            events += self._choice(choice, position)
        if read.tells_usage(data):
            events += self._usage(replace_invalid_text(data))
        return events

    def _choice(self, choice: _Choice, position: int) -> Iterable[CanonicalEvent]:
        index = position if choice.index is None else choice.index
        decoder = self._choices.get(index)
        if decoder is None:
            order = CallOrder(self.tool_names.__contains__)
            decoder = self._choices[index] = _ChoiceDecoder(index, order)
        return decoder.read(choice)

    def _after_end(self, data: bytes) -> Iterable[CanonicalEvent]:
        return self._usage(data)

    def _usage(self, data: bytes) -> Iterable[CanonicalEvent]:
        counts = find_counts(try_decode(fields_decoder, data) or {})
        self._counts = later(self._counts, counts)
        usage = usage_of(self._counts) if counts else None
        return () if usage is None else (UsageReported(usage),)


class _ChoiceDecoder:
    """Numbers a choice's blocks: a new one whenever the kind changes, and one for each call."""

    def __init__(self, index: int, order: CallOrder) -> None:
        self.finished = False
        self.blocks = 0
        """How many have begun."""
        self._index = index
        self._kind: type[CanonicalEvent] | None = None
        self._order = order
        self._calls: dict[int, int] = {}
        """The blocks of calls, by their numbers."""
        self._by_messages = False
        """Messages stand in place of the deltas."""

    def read(self, choice: _Choice) -> Iterable[CanonicalEvent]:
        said = choice.delta
        if choice.message is not None and (said is None or said.is_silent):
            said = self._not_repeated(choice.message)
        if said is not None and said.is_text and not choice.finish_reason:
            block = self._block(TextDelta)
            return (TextDelta(self._index, block, said.text, given(choice.logprobs)),)
        return self._events(choice, said)

    def _not_repeated(self, message: _Message) -> _Message:
        """Return a message that stands in place of the deltas; beside deltas its calls, if new."""
        if not self.blocks or self._by_messages:
            self._by_messages = True
            return message
        if self._order:
            return _Message()
        return _Message(tool_calls=message.tool_calls, function_call=message.function_call)

    def _events(self, choice: _Choice, said: _Message | None) -> Iterator[CanonicalEvent]:
        if said is not None and not (self.finished and said.is_empty):
            yield from self._delta(said, choice.logprobs)
        # Some servers send an empty reason with every chunk.
        if choice.finish_reason and not self.finished:
            self.finished = True
            yield from self._tool_calls(self._order.end())
            reason = final_reason(choice.finish_reason, called=bool(self._calls))
            yield ChoiceFinished(self._index, reason, choice.finish_reason)

    def end(self) -> Iterator[CanonicalEvent]:
        """Return the end of a choice that spoke, where the provider's stream has none of it."""
        if self._order.complete or (self.blocks and not self._order):
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

    def _reasoning(self, given: ReasoningBlock) -> Iterator[CanonicalEvent]:
        if given.field == "extra_content":
            self._kind = None
        at = self._index, self._block(ReasoningDelta)
        if given.text:
            yield ReasoningDelta(*at, given.text, given.is_summary, given.field)
        if given.signature or given.encrypted:
            proof = given.signature, given.encrypted, given.id, given.format, given.field
            yield ReasoningSignature(*at, *proof)
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
            self.blocks += 1
        return self.blocks - 1


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


# For a client


class ChatStreamEncoder(StreamEncoder):
    """Encodes a stream as chunks."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        self._request = source.request.fields
        self._identity = identity
        self._choices: dict[int, _ChoiceEncoder] = {}

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the chunk of an event; empty if the format has none for it."""
        if isinstance(event, (StreamStarted, UsageReported, BlockEnded)):
            return b""
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = _ChoiceEncoder(event.choice, self._identity.maker)
            self._choices[event.choice] = choice
        if not isinstance(event, TextDelta) or event.logprobs is not None or not choice.begun:
            return render_chunk(self._identity, [choice.encode(event)])
        if choice.template is not None:
            return choice.template.fill((encoder.encode(event.text),))
        shown = render_chunk(self._identity, [choice.encode(event)])
        choice.template = EventTemplate.of(shown, {"content": raw(event.text)})
        return shown

    def _end(self, charge: Charge) -> bytes:
        return render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return render_failure(self._identity, error)


class _ChoiceEncoder:
    """Encodes one choice: its role once, its tool calls numbered, nothing after its end."""

    def __init__(self, index: int, maker: str) -> None:
        self.begun = False
        self.template: EventTemplate | None = None
        """Of its chunks of text without log-probabilities, once there was one."""
        self._index = index
        self._maker = maker
        self._finished = False
        self._calls: dict[int, int] = {}
        """The number of the call by block."""
        self._details: dict[tuple[int, str], int] = {}
        """The number of the detail by block and kind."""

    def encode(self, event: BlockDelta | ChoiceFinished) -> dict[str, object]:
        if self._finished:
            raise MalformedResponse("a choice goes on after its end")
        delta = self._delta(event)
        if not self.begun:
            self.begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice: dict[str, object] = {
            "index": self._index,
            "delta": delta,
            "finish_reason": None,
            "logprobs": None,
        }
        if isinstance(event, TextDelta):
            choice["logprobs"] = event.logprobs
        elif isinstance(event, ChoiceFinished):
            self._finished, self.template = True, None
            choice["finish_reason"] = event.finish_reason
            choice["native_finish_reason"] = event.native_finish_reason
        return choice

    def _delta(self, event: BlockDelta | ChoiceFinished) -> dict[str, object]:
        if isinstance(event, TextDelta):
            return {"content": event.text}
        if isinstance(event, RefusalDelta):
            return {"refusal": event.text}
        if isinstance(event, ReasoningDelta):
            return self._reasoning(event)
        if isinstance(event, ReasoningSignature):
            return {"reasoning_details": self._signature(event)}
        if isinstance(event, ChoiceFinished):
            return {}
        begins = isinstance(event, ToolCallStarted)
        head = (event.id, event.name, "") if begins else (None, None, event.arguments)
        index = self._calls.setdefault(event.block, len(self._calls))
        return {"tool_calls": [{"index": index, **render_call(*head)}]}

    def _reasoning(self, event: ReasoningDelta) -> dict[str, object]:
        detail = self._detail(event, "summary" if event.is_summary else "text", event.text)
        return {"reasoning": event.text, "reasoning_details": [detail]}

    def _signature(self, event: ReasoningSignature) -> list[dict[str, object]]:
        details: list[dict[str, object]] = []
        signature = wrapped(event.signature or "", self._maker)
        if event.encrypted is None and event.format == ANTHROPIC:
            signature = signature or unsigned(self._maker)
        if signature:
            details.append(self._detail(event, "text", "", signature=signature))
        if event.encrypted is not None:
            data = wrapped(event.encrypted, self._maker)
            details.append(self._detail(event, "encrypted", data))
        return details

    def _detail(
        self, event: ReasoningDelta | ReasoningSignature, kind: DetailKind, said: str, **more: str
    ) -> dict[str, object]:
        proof = event if isinstance(event, ReasoningSignature) else None
        index = self._details.setdefault((event.block, kind), len(self._details))
        return {**render_detail(kind, said, proof, **more), "index": index}


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return a chat completion."""
    del source
    return encoder.encode(
        {
            **reply_fields(identity, "chat.completion"),
            "system_fingerprint": None,
            "service_tier": reply.service_tier,
            "choices": [_choice(choice, identity.maker) for choice in reply.choices],
            "usage": render_usage(charge),
        }
    )


def _choice(choice: Choice, maker: str) -> dict[str, object]:
    return {
        "index": choice.index,
        "message": _message(choice, maker),
        "finish_reason": choice.finish_reason,
        "native_finish_reason": choice.native_finish_reason,
        "logprobs": choice.logprobs,
    }


def _message(choice: Choice, maker: str) -> dict[str, object]:
    blocks = choice.blocks
    message: dict[str, object] = {
        "role": "assistant",
        "content": _text_of(TextBlock, blocks),
        "refusal": _text_of(RefusalBlock, blocks),
    }
    thoughts = [block for block in blocks if isinstance(block, ReasoningBlock)]
    if thoughts:
        message["reasoning"] = _text_of(ReasoningBlock, blocks) or None
        message["reasoning_details"] = render_details(thoughts, maker)
    calls = [block for block in blocks if isinstance(block, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"index": index, **render_call(call.id, call.name, call.arguments)}
            for index, call in enumerate(calls)
        ]
    return message


def _text_of(
    kind: type[TextBlock | RefusalBlock | ReasoningBlock], blocks: Sequence[Block]
) -> str | None:
    found = [block.text for block in blocks if isinstance(block, kind)]
    return "".join(found) if found else None


CHAT_CLIENT: Final = ClientFormat(parse_canonical_request, render_response, ChatStreamEncoder)
