"""Reads providers' messages and streams, and writes clients', by way of the canonical form. Pure.

`messages_order.py` puts a provider's events in order. Blocks without a canonical form (of the
provider's own tools) and citations are skipped; the remaining blocks are numbered without gaps.
What a client gets is always in a legal order:

    message_start (content_block_start content_block_delta* content_block_stop)*
    message_delta message_stop   |   error

One block is open at a time. The signature of reasoning is sent at the end of its block.

Source: https://docs.anthropic.com/en/api/messages, "response", and
https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.canonical import (
    ANTHROPIC,
    COMMON_PARAMETERS,
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
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.messages import (
    STOP_REASONS,
    broken_off,
    error_event,
    message_fields,
    read_fields,
    render_end,
    render_event,
    render_tokens,
    render_usage,
)
from tollhouse.inference.formats.messages_content import render_reasoning
from tollhouse.inference.formats.messages_order import (
    EMPTY_BLOCKS,
    ContentBlock,
    MessagesDelta,
    MessagesEvent,
    MessagesEventOrder,
    decode_message,
    first_usage_of,
    usage_of_stream,
)
from tollhouse.inference.formats.messages_requests import (
    parse_canonical_request,
    render_request,
)
from tollhouse.inference.formats.sequencing import (
    BlockSequencer,
    ResponseBuilder,
    arguments_object,
)
from tollhouse.inference.formats.tools import ANTHROPIC_NAMES
from tollhouse.inference.formats.translation import (
    ClientFormat,
    ProviderFormat,
    StreamDecoder,
    StreamEncoder,
)
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    EventTemplate,
    encoder,
    fields_decoder,
    id_text,
    is_done,
    raw,
    replace_invalid_text,
    text_decoder,
    try_decode,
)
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.inference.formats.translation import TranslationSource
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


# Providers' replies


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response; raises as `decode_message` does."""
    fields, message = decode_message(body)
    usage = read_fields(message.usage)
    tier = try_decode(text_decoder, usage.get("service_tier", NULL))
    parsed = (_parse_block(block) for block in message.content or ())
    blocks = tuple(block for block in parsed if block is not None)
    called = any(isinstance(block, ToolCall) for block in blocks)
    choice = Choice(
        blocks=blocks,
        finish_reason=normalize_finish_reason(message.stop_reason, called=called) or "stop",
        native_finish_reason=message.stop_reason,
        stop_sequence=message.stop_sequence,
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=usage_of(find_counts(fields)),
        upstream_id=id_text(message.id),
        service_tier="default" if tier == "standard" else tier,
    )


def _parse_block(block: ContentBlock) -> Block | None:
    """Convert a block; None if it has no canonical form or is empty."""
    if block.type == "text":
        return TextBlock(block.text) if block.text else None
    if block.type == "tool_use":
        arguments = "{}" if block.input == NULL else bytes(block.input).decode()
        return ToolCall(block.id or "", block.name or "", arguments)
    if block.type == "thinking":
        signature = block.signature or None
        return ReasoningBlock(text=block.thinking or "", signature=signature, format=ANTHROPIC)
    if block.type == "redacted_thinking":
        return ReasoningBlock(encrypted=block.data or "", format=ANTHROPIC)
    return None


class MessagesStreamDecoder(StreamDecoder):
    """Decodes a stream of messages events."""

    def __init__(self) -> None:
        self._order = MessagesEventOrder()
        self._open: ContentBlock | None = None
        """How the open block began, if it has a canonical form."""
        self._block = -1
        """The canonical number of the open or the last block."""
        self._signature = ""
        """That of the open block so far."""
        self._has_arguments = False
        """The open block has some besides those of its start."""
        self._finished = False
        self._called = False
        self._first: Counts = {}
        self._last: Counts = {}

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._order.complete

    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]:
        if is_done(data):
            return ()
        data = replace_invalid_text(data)
        told = self._order.accept(data)
        self.done = self._order.done
        if len(told) == 1:
            return self._read(*told[0])
        return [shown for each in told for shown in self._read(*each)]

    def _read(self, event: MessagesEvent, data: bytes) -> Sequence[CanonicalEvent]:
        match event.type:
            case "content_block_delta":
                return self._go_on(event.delta)
            case "content_block_start":
                return self._begin(event.content_block)
            case "content_block_stop":
                return self._stop()
            case "message_start":
                message = fields_decoder.decode(fields_decoder.decode(data)["message"])
                self._first = find_counts(message)
                upstream = event.message and id_text(event.message.id)
                return (StreamStarted(upstream, first_usage_of(self._first)),)
            case "message_delta" | "message_stop":
                return self._end(event.delta, data)
            case _:
                return ()

    def _begin(self, block: ContentBlock | None) -> Sequence[CanonicalEvent]:
        if block is None or block.type not in _CANONICAL:
            return ()
        self._open, self._signature, self._has_arguments = block, block.signature or "", False
        self._block += 1
        if block.type != "tool_use":
            return self._text(block, block)
        self._called = True
        return (ToolCallStarted(0, self._block, block.id or "", block.name or ""),)

    def _go_on(self, delta: MessagesDelta | None) -> Sequence[CanonicalEvent]:
        if delta is None or self._open is None:
            return ()
        if delta.type in {"text_delta", "thinking_delta"}:
            return self._text(self._open, delta)
        if delta.type == "signature_delta":
            self._signature += delta.signature or ""
        if delta.type == "input_json_delta" and delta.partial_json:
            self._has_arguments = True
            return (ToolCallDelta(0, self._block, delta.json_text),)
        return ()

    def _text(
        self, block: ContentBlock, part: ContentBlock | MessagesDelta
    ) -> Sequence[CanonicalEvent]:
        if block.type in _REASONING:
            return (ReasoningDelta(0, self._block, part.thinking),) if part.thinking else ()
        return (TextDelta(0, self._block, part.text),) if part.text else ()

    def _stop(self) -> Sequence[CanonicalEvent]:
        """Return the end of a block: what its start had, or what is known only now."""
        first, self._open = self._open, None
        if first is None:
            return ()
        rest: list[CanonicalEvent] = []
        block, number = _parse_block(first), self._block
        if isinstance(block, ToolCall) and not self._has_arguments:
            rest.append(ToolCallDelta(0, number, block.arguments))
        if isinstance(block, ReasoningBlock):
            proof = self._signature or None
            rest.append(ReasoningSignature(0, number, proof, block.encrypted, format=ANTHROPIC))
        return [*rest, BlockEnded(0, number)]

    def _end(self, delta: MessagesDelta | None, data: bytes) -> Sequence[CanonicalEvent]:
        self._last = later(self._last, find_counts(fields_decoder.decode(data)))
        events: list[CanonicalEvent] = []
        native = delta and delta.stop_reason
        if delta is not None and native is not None and not self._finished:
            self._finished = True
            reason = normalize_finish_reason(native, called=self._called) or "stop"
            events.append(ChoiceFinished(0, reason, native, delta.stop_sequence))
        usage = usage_of_stream(self._first, self._last)
        return [*events, UsageReported(usage)] if usage is not None else events


_REASONING: Final = frozenset({"thinking", "redacted_thinking"})
_CANONICAL: Final = frozenset({"text", "tool_use"}) | _REASONING
"""The block types that have a canonical form."""

# Clients' replies

_SHOWN_TIERS: Final = {"default": "standard", "standard": "standard", "priority": "priority"}


def _stop(end: Choice | ChoiceFinished, *, refused: bool) -> dict[str, object]:
    """Return the fields that say why a choice ended; null for a failed one."""
    if refused:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if end.finish_reason == "stop" and end.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop_sequence}
    return {"stop_reason": STOP_REASONS.get(end.finish_reason), "stop_sequence": None}


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return the client's body, with the first choice only."""
    del source
    choice = reply.choices[0]
    maker = identity.maker
    rendered = (_render_block(block, maker) for block in choice.blocks)
    blocks = [block for block in rendered if block is not None]
    refused = any(isinstance(block, RefusalBlock) for block in choice.blocks)
    usage = render_usage(charge, {"service_tier": _SHOWN_TIERS.get(reply.service_tier or "")})
    ours = {"content": blocks, **_stop(choice, refused=refused), "usage": usage}
    return encoder.encode(message_fields(identity, {}) | ours)


def _render_block(block: Block, maker: str) -> Mapping[str, object] | None:
    if isinstance(block, (TextBlock, RefusalBlock)):
        # Clients must not send empty text back.
        return {"type": "text", "text": block.text} if block.text else None
    if isinstance(block, ReasoningBlock):
        return render_reasoning(block, maker)
    if isinstance(block, ToolCall):
        arguments = arguments_object(block.arguments)
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": arguments}
    return None


# Streams


class MessagesStreamEncoder(StreamEncoder):
    """Encodes a stream block by block."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        del source
        self._identity = identity
        self._sequence = BlockSequencer()
        self._finished: ChoiceFinished | None = None
        self._refused = False
        self._started = False
        self._index = -1
        """The index of the open or the last block."""
        self._open: str | None = None
        """The type of the open block."""
        self._template: EventTemplate | None = None
        """Of the deltas of the open block, if it is text or thinking."""
        self._reasoning_builders: dict[int, ResponseBuilder] = {}
        """The reasoning blocks that have not ended."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return what the client gets of an event; may be empty."""
        written = b"".join(map(self._write, self._sequence.feed(event)))
        if self._started:
            return written
        return self._start(event.usage if isinstance(event, StreamStarted) else None) + written

    def _end(self, charge: Charge) -> bytes:
        start = self._start(None)
        if self._finished is None:
            # A response without a finish reason has failed; its open block is closed.
            start += b"".join(map(self._write, self._sequence.feed(ChoiceFinished(0, "error"))))
        finished = self._finished or ChoiceFinished(0, "error")
        if finished.finish_reason == "error":
            return start + self._stop_block() + broken_off(self._identity)
        return start + render_end(_stop(finished, refused=self._refused), render_usage(charge))

    def _fail(self, error: TollhouseError) -> bytes:
        return error_event(error, self._identity.id)

    def _start(self, usage: Usage | None) -> bytes:
        if self._started:
            return b""
        self._started = True
        message = message_fields(self._identity, {})
        estimate = Usage(input_tokens=self._identity.input_tokens)
        message |= {"content": (), "usage": render_tokens(usage or estimate)}
        return render_event("message_start", {"message": message})

    def _write(self, event: CanonicalEvent) -> bytes:
        if isinstance(event, TextDelta):
            # Clients must not send empty blocks back.
            return self._text("text", event.text) if event.text else b""
        if isinstance(event, BlockEnded):
            return self._end_block(event.block)
        if isinstance(event, ChoiceFinished):
            self._finished = event
            return b""
        if isinstance(event, BlockDelta):
            return self._write_delta(event)
        return b""

    def _write_delta(self, event: BlockDelta) -> bytes:
        if isinstance(event, ToolCallStarted):
            return self._open_block(
                {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
            )
        if isinstance(event, ToolCallDelta):
            # Arguments without a call have no legal rendering.
            legal = self._open == "tool_use" and bool(event.arguments)
            given = event.arguments
            return self._delta("input_json_delta", "partial_json", given) if legal else b""
        if isinstance(event, ReasoningSignature):
            self._note(event)
            return b""
        if not event.text:
            # Clients must not send empty blocks back.
            return b""
        if isinstance(event, ReasoningDelta):
            self._note(event)
            return self._text("thinking", event.text)
        self._refused = self._refused or isinstance(event, RefusalDelta)
        return self._text("text", event.text)

    def _text(self, kind: str, text: str) -> bytes:
        opened = self._begun(kind)
        if self._template is not None:
            return self._template.fill((encoder.encode(text),))
        shown = self._delta(f"{kind}_delta", kind, text)
        self._template = EventTemplate.of(shown, {kind: raw(text)})
        return opened + shown

    def _delta(self, kind: str, field: str, text: str) -> bytes:
        delta = {"type": kind, field: text}
        return render_event("content_block_delta", {"index": self._index, "delta": delta})

    def _begun(self, kind: str) -> bytes:
        return b"" if self._open == kind else self._open_block(EMPTY_BLOCKS[f"{kind}_delta"])

    def _open_block(self, block: Mapping[str, object]) -> bytes:
        closed = self._stop_block()
        self._template = None
        self._index += 1
        self._open = str(block["type"])
        start = {"index": self._index, "content_block": block}
        return closed + render_event("content_block_start", start)

    def _stop_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return render_event("content_block_stop", {"index": self._index})

    def _end_block(self, block: int) -> bytes:
        builder = self._reasoning_builders.pop(block, None)
        reasoning = None if builder is None else builder.block(0, block)
        proof = self._end_reasoning(reasoning) if isinstance(reasoning, ReasoningBlock) else b""
        return proof + self._stop_block()

    def _note(self, event: ReasoningDelta | ReasoningSignature) -> None:
        self._reasoning_builders.setdefault(event.block, ResponseBuilder()).add(event)

    def _end_reasoning(self, reasoning: ReasoningBlock) -> bytes:
        rendered = render_reasoning(reasoning, self._identity.maker)
        if rendered["type"] == "redacted_thinking":
            return self._open_block(rendered)
        opened = self._begun("thinking")
        return opened + self._delta("signature_delta", "signature", str(rendered["signature"]))


MESSAGES_CLIENT: Final = ClientFormat(
    parse_canonical_request, render_response, MessagesStreamEncoder
)
MESSAGES_PROVIDER: Final = ProviderFormat(
    dialect=Dialect.MESSAGES,
    supported_parameters=COMMON_PARAMETERS
    | {"stop", "temperature", "top_p", "top_k", "service_tier"},
    canonical_names={"output_config": "output", "metadata": "user", "stop_sequences": "stop"},
    render_request=render_request,
    parse_response=parse_response,
    stream_decoder=MessagesStreamDecoder,
    tool_names=ANTHROPIC_NAMES,
)
