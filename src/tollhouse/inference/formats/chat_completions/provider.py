"""The provider's side of the chat format: canonical requests to its own, its replies back. Pure.

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
from tollhouse.inference.formats.canonical.places import NotCarriedError
from tollhouse.inference.formats.canonical.translation import ProviderFormat, StreamDecoder
from tollhouse.inference.formats.canonical.types import (
    COMMON_PARAMETERS,
    FREEFORM_SCHEMA,
    SAMPLING,
    AudioBlock,
    Block,
    CanonicalEvent,
    CanonicalRequest,
    CanonicalResponse,
    CanonicalToolChoice,
    Choice,
    ChoiceFinished,
    DocumentBlock,
    FinishReason,
    ImageBlock,
    JsonOutput,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ThinkingOptions,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    ToolDefinition,
    ToolResult,
    Turn,
    UsageReported,
    usual_effort,
)
from tollhouse.inference.formats.chat_completions.calls import (
    CallOrder,
    CallPart,
    CallPiece,
    Function,
    whole_calls,
)
from tollhouse.inference.formats.chat_completions.reasoning import (
    ContentPart,
    ReasoningDetail,
    parse_details,
    parse_extra,
    render_extra,
    render_thoughts,
)
from tollhouse.inference.formats.chat_completions.wire import (
    render_call,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.provider_errors import error_in_place_of_reply, read_error
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
    encoder,
    fields_decoder,
    given,
    is_done,
    present,
    replace_invalid_text,
    try_decode,
    without,
)
from tollhouse.inference.types import Dialect, Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_MOST_STOPS: Final = 4


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a request."""
    profile = endpoint.profile
    with_usage = prompt.stream and profile.usage_in_streams
    fields: dict[str, object] = {
        "model": endpoint.model,
        "messages": [each for turn in prompt.turns for each in _messages(turn, endpoint)],
        "stream": prompt.stream or None,
        "stream_options": {"include_usage": True} if with_usage else None,
        profile.output_limit: prompt.max_tokens,
        "stop": list(prompt.stop[:_MOST_STOPS]) or None,
        "user": prompt.user,
        "metadata": prompt.metadata,
        "n": prompt.choices,
        **_tools(prompt),
        "response_format": None if prompt.output is None else _format(prompt.output),
        "reasoning_effort": None if prompt.thinking is None else _effort(prompt.thinking),
        "verbosity": prompt.verbosity,
        "logprobs": prompt.logprobs or None,
        "top_logprobs": prompt.top_logprobs if prompt.logprobs else None,
        **{name: prompt.sampling[name] for name in SAMPLING if name in prompt.sampling},
    }
    return encoder.encode(without(present(fields), profile.refused_in_chat))


def _effort(thinking: ThinkingOptions) -> str | None:
    effort = usual_effort(thinking)
    return "low" if effort is None and thinking.budget_tokens is not None else effort


def _format(output: JsonOutput) -> dict[str, object]:
    if output.schema is None:
        return {"type": "json_object"}
    schema: dict[str, object] = {"name": output.name or "answer", "schema": output.schema}
    if output.description is not None:
        schema["description"] = output.description
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}


# Tools


def _tools(prompt: CanonicalRequest) -> dict[str, object]:
    if not prompt.tools:
        return {}
    return {
        "tools": [_tool(each) for each in prompt.tools],
        "tool_choice": None if prompt.tool_choice is None else _tool_choice(prompt.tool_choice),
        "parallel_tool_calls": prompt.parallel_tool_calls,
    }


def _tool_choice(choice: CanonicalToolChoice) -> object:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def _tool(tool: ToolDefinition) -> Mapping[str, object]:
    fields = {
        "name": tool.name,
        "description": tool.description,
        "parameters": FREEFORM_SCHEMA if tool.freeform else tool.parameters,
        "strict": tool.strict,
    }
    return {"type": "function", "function": present(fields)}


# Messages


def _messages(turn: Turn, endpoint: Endpoint) -> Iterator[dict[str, object]]:
    if turn.role == "assistant":
        message = _assistant(turn, endpoint)
        if len(message) > 1:
            yield message
        return
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    yield from map(_result, results)
    # A tool message holds text only; other content follows in a user message.
    pictures = [
        each for result in results for each in result.content if not isinstance(each, TextBlock)
    ]
    rest = [block for block in turn.blocks if not isinstance(block, ToolResult)]
    if pictures or rest:
        yield {"role": turn.role, "content": _content([*pictures, *rest])}


def _result(result: ToolResult) -> dict[str, object]:
    texts = [each.text for each in result.content if isinstance(each, TextBlock)]
    return {"role": "tool", "tool_call_id": result.call_id, "content": "\n".join(texts)}


def _assistant(turn: Turn, endpoint: Endpoint) -> dict[str, object]:
    mine = [
        block
        for block in turn.blocks
        if isinstance(block, ReasoningBlock) and block.may_go_to(endpoint.provider)
    ]
    extras = {block.id: block for block in mine if block.field == "extra_content"}
    text_blocks = [block for block in turn.blocks if isinstance(block, (TextBlock, RefusalBlock))]
    calls = [
        render_call(block.id, block.name, block.arguments) | render_extra(extras.get(block.id))
        for block in turn.blocks
        if isinstance(block, ToolCall)
    ]
    message: dict[str, object] = {"role": "assistant"}
    if text_blocks:
        message["content"] = _content(text_blocks)
    if calls:
        message["tool_calls"] = calls
    message |= render_extra(extras.get(None))
    thoughts = [block for block in mine if block.field != "extra_content"]
    if thoughts:
        first = thoughts[0]
        # Of the fields of chat, only the details have signatures.
        is_signed = first.maker is not None and bool(first.signature or first.encrypted)
        usual = "reasoning_details" if is_signed else endpoint.profile.takes_reasoning_as
        field = first.field or usual
        message |= render_thoughts(thoughts, field, [_part(block) for block in text_blocks])
    return message


def _content(blocks: Iterable[Block]) -> str | list[dict[str, object]]:
    """Return a message's content: a plain string if there is only text."""
    parts = [_part(block) for block in blocks]
    if all(part.keys() == {"type", "text"} for part in parts) and len(parts) <= 1:
        return "".join(str(part["text"]) for part in parts)
    return parts


def _part(block: Block) -> dict[str, object]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    if isinstance(block, ImageBlock):
        url = {"url": block.url} | ({} if block.detail is None else {"detail": block.detail})
        return {"type": "image_url", "image_url": url}
    if isinstance(block, AudioBlock):
        recording = {"data": block.data, "format": block.format}
        return {"type": "input_audio", "input_audio": recording}
    if isinstance(block, DocumentBlock):
        return _document(block)
    kind = type(block).__name__.removesuffix("Block")
    raise NotCarriedError(block, f"a {kind} cannot stand in a message of this role.")


def _document(document: DocumentBlock) -> dict[str, object]:
    if document.text is not None:
        return {"type": "text", "text": document.text}
    if document.url is None or not document.url.startswith("data:"):
        reason = "a document by URL cannot be sent to this provider; send its bytes."
        raise NotCarriedError(document, reason)
    file = {"filename": document.name or "document", "file_data": document.url}
    return {"type": "file", "file": file}


# Responses


class _Message(Struct):
    """A complete message, or the delta of a chunk."""

    content: str | list[ContentPart] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: Function | None = None
    """As some servers still write a call: the format's first way, of one call."""
    extra_content: Raw = NULL
    usage: Raw = NULL

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""

    @property
    def is_empty(self) -> bool:
        return not (self.text or self.refusal or self.calls)

    @property
    def calls(self) -> list[CallPiece]:
        """The calls, or pieces of them."""
        legacy = self.function_call
        return self.tool_calls or ([] if legacy is None else [CallPiece(function=legacy)])

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
            and self.extra_content == NULL
        )

    @property
    def reasoning_blocks(self) -> list[ReasoningBlock]:
        if found := parse_details(self.reasoning_details or ()):
            return [replace(block, field="reasoning_details") for block in found]
        if self.reasoning_content:
            return [ReasoningBlock(self.reasoning_content, field="reasoning_content")]
        if self.reasoning:
            return [ReasoningBlock(self.reasoning, field="reasoning")]
        parts = self.content if isinstance(self.content, list) else ()
        text = "".join(part.thoughts for part in parts)
        return [ReasoningBlock(text, field="thinking")] if text else []


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
    id: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = NULL
    object: str | None = None
    error: Raw = NULL
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
        raise MalformedResponse("the reply is not of the chat dialect") from None
    if read.error != NULL or read.object == "error":
        raise read_error(data)
    if read.choices is None and (error := error_in_place_of_reply(data)):
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
        upstream_id=read.id,
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
    if message.extra_content != NULL:
        yield parse_extra(message.extra_content)
    for call in whole_calls(message.calls):
        if call.extra_content != NULL:
            yield parse_extra(call.extra_content, call.call_id)
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
            return ()
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
            yield StreamStarted(read.id)
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

    @property
    def has_spoken(self) -> bool:
        return self.finished or self._blocks > 0

    def read(self, choice: _Choice) -> Iterable[CanonicalEvent]:
        delta = choice.delta
        if delta is not None and delta.is_text and not choice.finish_reason:
            return (
                TextDelta(self._index, self._block(TextDelta), delta.text, given(choice.logprobs)),
            )
        return self._events(choice)

    def _events(self, choice: _Choice) -> Iterator[CanonicalEvent]:
        if choice.delta is not None and not (self.finished and choice.delta.is_empty):
            yield from self._delta(choice.delta, choice.logprobs)
        # Some servers send an empty reason with every chunk.
        if choice.finish_reason and not self.finished:
            self.finished = True
            yield from self._tool_calls(self._order.end())
            reason = _finish_reason(choice.finish_reason, called=bool(self._calls))
            yield ChoiceFinished(self._index, reason, choice.finish_reason)

    def _delta(self, message: _Message, logprobs: Raw) -> Iterator[CanonicalEvent]:
        for reasoning in message.reasoning_blocks:
            yield from self._reasoning(reasoning)
        if message.text or logprobs != NULL:
            yield TextDelta(self._index, self._block(TextDelta), message.text, given(logprobs))
        if message.refusal:
            yield RefusalDelta(self._index, self._block(RefusalDelta), message.refusal)
        if message.extra_content != NULL:
            yield from self._reasoning(parse_extra(message.extra_content))
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
            if part.extra_content != NULL:
                yield from self._reasoning(parse_extra(part.extra_content, part.call_id))
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
