"""What providers send of a message, and the order of its events that clients rely on: one rule.

    message_start
      (content_block_start content_block_delta* content_block_stop)*    numbered from 0
      message_delta+                                                    the last has a stop reason
    message_stop                    ping and events of unknown kinds: anywhere in between

Servers leave out the starts, the stops or the numbers, number every block 0, send blocks in turn,
and give a tool's input at the start of its block alone. What holds for all of them:

    a start begins a block; another block at its number has ended
    a delta belongs to the last block at its number that it fits; text without a block begins one
    a block waits until the one before has its stop, or all of a tool's input and the next one
    begins, or until the next one has had several events and the one before none
    null in place of a delta's text says nothing
    a tool's input follows the rule of arguments; that of its start counts if none follows

Pure.

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/docs/build-with-claude/streaming, and the messages servers of
LiteLLM, Bedrock's converters and vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.provider_errors import not_of_dialect, read_error
from tollhouse.inference.formats.tools import Arguments, whole_arguments
from tollhouse.inference.formats.usage import Counts, final, read_counts, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    AnyId,
    Fields,
    encoder,
    fields_decoder,
    raw,
    replace_invalid_text,
    text_bytes,
    text_decoder,
    try_decode,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Usage

T = TypeVar("T")
_NO_INPUT: Final = (Raw(b"{}"), NULL)


class ContentBlock(msgspec.Struct):
    """A block of a response, or the start of one; its fields depend on its type."""

    type: str
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: Raw = NULL


class MessagesDelta(msgspec.Struct):
    """The delta of a block, or of the message at its end."""

    type: str | None = None
    text: str | None = None
    partial_json: str | Fields | None = None
    """A text; some servers send an object."""
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None

    @property
    def json_text(self) -> str:
        """The piece of a tool's input."""
        given = self.partial_json or ""
        return given if isinstance(given, str) else encoder.encode(given).decode()

    @property
    def is_null(self) -> bool:
        """Whether null stands where a delta of its type has its text."""
        name = _TEXTS.get(self.type or "")
        return name is not None and getattr(self, name) is None


class MessageObject(msgspec.Struct):
    """A complete message, or the one at the start of a stream."""

    id: AnyId = None
    content: list[ContentBlock] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Raw = NULL


class MessagesEvent(msgspec.Struct):
    """Any event of a stream."""

    type: str
    index: int | None = None
    message: MessageObject | None = None
    content_block: ContentBlock | None = None
    delta: MessagesDelta | None = None


class _CacheCreation(msgspec.Struct):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _ProviderUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


class _Failure(msgspec.Struct):
    type: str | None = None
    error: Raw = NULL


Told = tuple[MessagesEvent, bytes]
"""An event, and the data of it."""
delta_decoder: Final = msgspec.json.Decoder(MessagesDelta)
_event: Final = msgspec.json.Decoder(MessagesEvent)
_message: Final = msgspec.json.Decoder(MessageObject)
_failure: Final = msgspec.json.Decoder(_Failure)
_usage: Final = msgspec.json.Decoder(_ProviderUsage)
_content: Final = msgspec.json.Decoder(list[Fields])

_TEXTS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""The field of each known type of delta that has its text."""
_BLOCKS: Final = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""The type of block in which each known type of delta stands."""
_KNOWN_BLOCKS: Final = frozenset({*_BLOCKS.values(), "redacted_thinking"})
EMPTY_BLOCKS: Final[Mapping[str, Mapping[str, object]]] = {
    "text_delta": {"type": "text", "text": ""},
    "thinking_delta": {"type": "thinking", "thinking": "", "signature": ""},
}
"""How a block begins, for the deltas that can begin one."""
_PATIENCE: Final = 4
"""Events of waiting blocks after which the open one is over, if it got none in between."""


def output_bytes(part: ContentBlock | MessagesDelta) -> int:
    """Return the bytes of output in a block or a delta."""
    size = text_bytes(part.text) if part.text else 0
    if part.thinking:
        size += text_bytes(part.thinking)
    if isinstance(part, ContentBlock):
        return size if part.input in _NO_INPUT else size + len(part.input)
    return size + text_bytes(part.json_text) if part.partial_json else size


def readable_usage(fields: Fields) -> Fields:
    """Return the usage at the start of a stream if it is valid for clients; else nothing."""
    strict = try_decode(_usage, raw({"output_tokens": 0, **fields}))
    return fields if strict is not None and read_counts(raw(fields)) else {}


def first_usage_of(counts: Counts) -> Usage | None:
    """Return the usage that a provider reported before its output."""
    return usage_of({"output": 0, **counts})


def usage_of_stream(start: Counts, end: Counts) -> Usage | None:
    """Return the usage of a stream, of what it reported at its start and at its end."""
    # The output at the start covers only what came until then.
    told = "output" in end or "total" in end
    return usage_of(final(start, end)) if told else None


def decode_message(body: bytes) -> tuple[Fields, MessageObject]:
    """Decode a complete response: its raw fields and its typed message.

    Raises `MalformedResponse`, or `ErrorEvent` for an error sent with a success status.
    """
    try:
        body = replace_invalid_text(body)
        fields = fields_decoder.decode(body)
        if fields.get("error", NULL) != NULL:
            raise read_error(body)
        content = fields.get("content", NULL)
        if b"tool_use" in body and (blocks := try_decode(_content, content)):
            ids: set[str] = set()
            fields["content"] = raw([_whole_call(each, at, ids) for at, each in enumerate(blocks)])
            body = encoder.encode(fields)
        message = _message.decode(body)
    except (msgspec.DecodeError, RecursionError):
        fields, message = {}, None
    if message is None or message.content is None:
        raise MalformedResponse("the reply is not a message")
    return fields, message


def _whole_call(block: Fields, number: int, calls: set[str]) -> Fields:
    """Return a block that calls a tool with an id, and with its input as an object.

    The id is none of those of other calls, and is added to them.
    """
    if try_decode(text_decoder, block.get("type", NULL)) != "tool_use":
        return block
    call = try_decode(text_decoder, block.get("id", NULL)) or "toolu"
    if call in calls or call == "toolu":
        call = f"{call}_{number}"
        block = {**block, "id": raw(call)}
    calls.add(call)
    given = block.get("input", NULL)
    if memoryview(given)[0] == ord("{"):
        return block
    text = whole_arguments(given)
    found = try_decode(fields_decoder, text)
    return {**block, "input": raw({"input": text} if found is None else found)}


def fits_block(delta: str | None, block: str | None) -> bool:
    """Return whether a delta of some type may be one of a block of some type."""
    own = _BLOCKS.get(delta or "")
    # Types newer than this gateway cannot be checked.
    return own is None or own == block or block not in _KNOWN_BLOCKS


def _decode_event(data: bytes) -> MessagesEvent:
    try:
        if b'"error"' in data:
            failure = _failure.decode(data)
            if failure.type == "error" or failure.error != NULL:
                raise read_error(data)
        return _event.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise not_of_dialect(data, "an event of the stream is none of a message") from None


def _told(kind: str, number: int | None, **fields: object) -> Told:
    data = encoder.encode({"type": kind, "index": number, **fields})
    return _event.decode(data), data


class _Block:
    """A block that has begun."""

    def __init__(self, event: MessagesEvent, data: bytes) -> None:
        self.start = event, data
        self.type = event.content_block.type if event.content_block else ""
        self.number = -1
        """Its place among those that were shown."""
        self.over = False
        """Its stop came, or had to come."""
        self.waiting: list[Told] = []
        self.arguments = Arguments()


class MessagesEventOrder:
    """Tracks how far a stream is."""

    def __init__(self) -> None:
        self.started = False
        self.done = False
        self.block_count = 0
        """How many blocks were shown; the open one is the last."""
        self._stopped = False
        """A stop reason arrived."""
        self._calls: set[str] = set()
        """The ids of calls."""
        self._open: _Block | None = None
        self._waiting: list[_Block] = []
        self._at: dict[int | None, _Block] = {}
        """The last block of each number that the provider gave."""
        self._last: _Block | None = None
        self._others = 0
        """Events of waiting blocks since one of the open block."""

    @property
    def open_block(self) -> str | None:
        """The type of the open block."""
        return None if self._open is None else self._open.type

    @property
    def complete(self) -> bool:
        """Whether the message is complete, though `message_stop` may be missing."""
        return self.done or (self._stopped and self._open is None)

    def goes_on(self, piece: str | None, *, is_input: bool) -> bool:
        """Take a delta like the one before, if it needs no change; else return False."""
        if self._waiting or self._open is None or piece is None:
            return False
        return not is_input or self._open.arguments.goes_on(piece)

    def accept(self, data: bytes) -> list[Told]:
        """Decode a provider's event; return the events that come now, in order.

        Raises as `StreamDecoder.feed` does.
        """
        event = _decode_event(data)
        match event.type:
            case "content_block_delta":
                return self._go_on(event, data)
            case "content_block_start":
                return self._begin(event, data)
            case "content_block_stop":
                _require(self._given(event.index)).over = True
                return self._advance()
            case "message_start":
                _require(not self.started and event.message is not None)
                self.started = True
            case "message_delta":
                _require(self.started)
                if event.delta is not None and event.delta.stop_reason is not None:
                    self._stopped = True
                    for block in self._at.values():
                        block.over = True
                    return [*self._advance(), (event, data)]
            case "message_stop":
                _require(self._stopped)
                self.done = True
            case _:
                pass
        return [(event, data)]

    def _begin(self, event: MessagesEvent, data: bytes) -> list[Told]:
        _require(self.started and not self._stopped and event.content_block is not None)
        before = self._at.get(event.index)
        if before is not None:
            before.over = True
        block = self._last = self._at[event.index] = _Block(event, data)
        self._waiting.append(block)
        return self._advance()

    def _go_on(self, event: MessagesEvent, data: bytes) -> list[Told]:
        delta = _require(event.delta)
        if delta.is_null:
            return []
        block = self._of(event.index, delta.type)
        if block is None or (block.over and block.number >= 0 and block is not self._open):
            empty = EMPTY_BLOCKS.get(delta.type or "")
            if empty is None:
                # The signature of a block that had to end, or nothing at all.
                _require(block is not None and delta.type == "signature_delta")
                return []
            start = _told("content_block_start", event.index, content_block=empty)
            return [*self._begin(*start), *self._go_on(event, data)]
        if block is self._open:
            self._others = 0
            written = self._shown(block, event, data)
            return [*written, *self._advance()] if self._waiting else written
        block.waiting.append((event, data))
        self._others += 1
        return self._advance()

    def _given(self, index: int | None) -> _Block | None:
        """Return the block that a provider means by a number, or by none."""
        return self._last if index is None else self._at.get(index)

    def _of(self, index: int | None, delta: str | None) -> _Block | None:
        """Return the block that a delta goes on with."""
        given = self._given(index)
        if given is not None and fits_block(delta, given.type):
            return given
        others = (*reversed(self._waiting), self._open)
        return next((each for each in others if each and fits_block(delta, each.type)), None)

    def _advance(self) -> list[Told]:
        """End the open block if it is over, and begin those that waited for it."""
        written: list[Told] = []
        while True:
            if self._open is not None:
                if not self._is_over(self._open):
                    return written
                written += self._close(self._open)
            if not self._waiting:
                return written
            block = self._waiting.pop(0)
            self._open, block.number, self._others = block, self.block_count, 0
            self.block_count += 1
            written.append(self._opening(block))
            for event, data in block.waiting:
                written += self._shown(block, event, data)
            block.waiting = []

    def _is_over(self, block: _Block) -> bool:
        if block.over or not self._waiting:
            return block.over
        if block.type.endswith("tool_use"):
            return block.arguments.complete
        return self._others >= _PATIENCE

    def _opening(self, block: _Block) -> Told:
        event, data = block.start
        given = event.content_block
        plain = block.type != "tool_use" or (
            given and given.id and given.input == _NO_INPUT[0] and given.id not in self._calls
        )
        if plain and given and given.id:
            self._calls.add(given.id)
        if plain and event.index == block.number:
            return block.start
        content = fields_decoder.decode(fields_decoder.decode(data)["content_block"])
        if not plain:
            content = {**_whole_call(content, block.number, self._calls), "input": _NO_INPUT[0]}
        return _told("content_block_start", block.number, content_block=content)

    def _shown(self, block: _Block, event: MessagesEvent, data: bytes) -> list[Told]:
        delta = event.delta
        if delta is not None and delta.type == "input_json_delta" and delta.partial_json != "":
            text = block.arguments.add(delta.json_text)
            if not text:
                return []
            if text != delta.partial_json:
                return [_input(block, text)]
        if event.index == block.number:
            return [(event, data)]
        return [_told(event.type, block.number, delta=fields_decoder.decode(data)["delta"])]

    def _close(self, block: _Block) -> list[Told]:
        self._open, block.over = None, True
        rest = ""
        first = block.start[0].content_block
        if block.arguments.begun:
            rest = block.arguments.end()
        elif first is not None and first.input not in _NO_INPUT:
            rest = whole_arguments(first.input)
        written = [_input(block, rest)] if rest else []
        return [*written, _told("content_block_stop", block.number)]


def _input(block: _Block, text: str) -> Told:
    delta = {"type": "input_json_delta", "partial_json": text}
    return _told("content_block_delta", block.number, delta=delta)


def _require(value: T | None) -> T:
    if not value:
        raise MalformedResponse("an event of the stream is out of order")
    return value
