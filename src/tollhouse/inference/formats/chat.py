"""The parts of the chat format that the gateway decodes or writes; the rest stays raw.

Before the first byte an error is the common envelope. After status 200 was sent it is part of the
last chunk, is repeated in one without choices, and alone after `[DONE]`:

    {"error", "id", ..., "choices": [{"finish_reason": "error"}]}
    {"error", "id", ..., "choices": []}  [DONE]  {"error"}

Source: https://platform.openai.com/docs/api-reference/chat and the public gateway's reference: its
additions (`provider`, `native_finish_reason`, `cost`), "preserving reasoning", "errors during
streaming". Its own clients and OpenAI's stop reading at `[DONE]`. The `openai` provider of Vercel's
AI SDK ignores an error beside `choices`, and reads on. langchain-openrouter 0.2.9 ignores one
beside a choice, and raises one without. go-openai recognizes an error only at the start of an
event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from tollhouse.inference.formats.adapter import ClientRequest
from tollhouse.inference.formats.chat_calls import Called
from tollhouse.inference.formats.proofs import IN_DETAILS
from tollhouse.inference.formats.provider_errors import (
    error_in_place_of_reply,
    not_of_dialect,
    raise_error_within,
    read_error,
)
from tollhouse.inference.formats.wire import (
    DONE,
    NULL,
    Fields,
    T,
    encoder,
    fields_decoder,
    join_lines,
    read_field,
    read_flag,
    read_messages,
    read_model,
    read_object,
    render_costs,
    replace_invalid_text,
    text_bytes,
    text_decoder,
    try_decode,
)
from tollhouse.inference.sse import event
from tollhouse.kernel.errors import Invalid, TollhouseError, error_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.types import ReplyIdentity


CHUNK: Final = "chat.completion.chunk"


class ChatDelta(Called):
    """A chunk's `delta` or a complete `message`, as far as token counts need it."""

    content: str | list[Raw] | None = None
    """Some providers send a list of parts."""
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    reasoning_details: Raw = NULL
    thinking_blocks: Raw = NULL
    extra_content: Raw = NULL
    provider_specific_fields: Raw = NULL
    usage: Raw = NULL

    @property
    def is_silent(self) -> bool:
        """Whether it says nothing."""
        details = self.reasoning_details != NULL or self.thinking_blocks != NULL
        thinks = self.reasoning or self.reasoning_content or details
        return not (self.content or self.refusal or thinks or self.calls)

    @property
    def needs_change(self) -> bool:
        """Whether it is not as clients read it.

        One of the two fields in which they look for the reasoning is missing, the text is in parts,
        or there is what only its maker can read, or a usage.
        """
        details = self.reasoning_details
        if self.reasoning if details == NULL else IN_DETAILS.search(bytes(details)):
            return True
        if self.function_call != NULL or (
            self.tool_calls != NULL and b"thought_signature" in bytes(self.tool_calls)
        ):
            return True
        thinks = self.reasoning_content and not self.reasoning
        if self.thinking_blocks != NULL or b"signature" in bytes(self.provider_specific_fields):
            return True
        beside = self.extra_content != NULL or self.usage != NULL
        return bool(thinks) or isinstance(self.content, list) or beside


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class ChunkChoice(msgspec.Struct):
    """A chunk's choice, as far as the gateway needs it; fields that are absent stay unset."""

    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None
    """What some servers send in place of a delta, or once more at the end."""
    finish_reason: str | UnsetType | None = UNSET


_EMPTY_CHOICE: Final[Mapping[str, object]] = {
    "index": 0,
    "delta": {},
    "finish_reason": None,
    "logprobs": None,
}
"""The choice of a chunk without output."""
choices_decoder: Final = msgspec.json.Decoder(list[Fields])
chunk_choices_decoder: Final = msgspec.json.Decoder(list[ChunkChoice] | None)
_message: Final = msgspec.json.Decoder(ChatDelta)
_calls: Final = msgspec.json.Decoder(list[_ToolCall])


# Usage


def output_bytes(delta: ChatDelta) -> int:
    """Return the bytes of output in a delta."""
    size = _called_bytes(delta.tool_calls) if delta.tool_calls != NULL else 0
    size += len(delta.function_call) if delta.function_call != NULL else 0
    content, reasoning = delta.content, delta.reasoning or delta.reasoning_content
    if isinstance(content, str):
        size += text_bytes(content)
    elif content:
        size += sum(map(len, content))
    if reasoning:
        size += text_bytes(reasoning)
    return size + text_bytes(delta.refusal) if delta.refusal else size


def _called_bytes(tool_calls: msgspec.Raw) -> int:
    """Return the bytes of tool names and arguments, without the JSON around them."""
    calls = try_decode(_calls, tool_calls)
    if calls is None:
        return len(tool_calls)
    written = (call.function for call in calls if call.function is not None)
    return sum(len(f"{each.name or ''}{each.arguments or ''}".encode()) for each in written)


def message_bytes(message: msgspec.Raw) -> int:
    """Return the bytes of output in a complete message."""
    try:
        return output_bytes(_message.decode(message))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Of an unknown shape; the size of its JSON is close enough.
        return len(message)


class _Options(msgspec.Struct):
    include_usage: bool | None = None
    include: bool | None = None


_options = msgspec.json.Decoder(_Options | None)


def asks_for_usage(fields: Fields) -> bool:
    """Return whether a request wants the usage in a last chunk without choices.

    The usage is sent in any case; clients that did not ask read the first choice of every chunk.
    OpenAI's option is `stream_options.include_usage`, the public gateway's is `usage.include`.
    """
    given = (try_decode(_options, fields.get(name, NULL)) for name in ("stream_options", "usage"))
    return any(each is not None and (each.include_usage or each.include) for each in given)


def render_usage(charge: Charge) -> dict[str, object]:
    """Return the `usage` object of a response."""
    usage = charge.usage
    prompt_tokens = usage.prompt_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        **render_costs(charge),
    }


# Errors


_ERROR: Final = Raw(b'"error"')
_NO_CHOICES: Final = (NULL, Raw(b"[]"))


def decode_reply(decoder: msgspec.json.Decoder[T], data: bytes, problem: str) -> T:
    """Decode a response or a chunk; raises the error in its place, else `MalformedResponse`."""
    if data[:2] == b"[{":
        raise read_error(data)
    try:
        return decoder.decode(replace_invalid_text(data))
    except (msgspec.DecodeError, RecursionError):
        raise not_of_dialect(data, problem) from None


def raise_error_instead(data: bytes, *, is_error: bool, is_empty: bool) -> None:
    """Raise what a response or a chunk tells that is an error, or may be one: it has no choices."""
    if is_error:
        raise read_error(data)
    if is_empty and (error := error_in_place_of_reply(data)):
        raise error


def decode_fields(data: bytes) -> Fields:
    """Return the fields of a response or a chunk; raises `ErrorEvent` if it is an error."""
    fields = decode_reply(fields_decoder, data, "it is not of the chat dialect")
    raise_error_within(fields)
    is_empty = fields.get("choices", NULL) in _NO_CHOICES
    raise_error_instead(data, is_error=fields.get("object") == _ERROR, is_empty=is_empty)
    return fields


def render_stream_error(error: TollhouseError, chunk: Mapping[str, object]) -> bytes:
    """Return the end of a failed stream: the error, with its last chunk, without choices, alone."""
    shown = error_object(error)
    metadata = {"error_type": error.code, **error.metadata}
    if "provider_code" in metadata:  # OpenRouter's clients read no number in a chunk
        metadata["provider_code"] = str(metadata["provider_code"])
    shown["metadata"] = metadata
    last = {"error": shown, **chunk}
    ends = (last, last | {"choices": ()})
    events = (*map(encoder.encode, ends), DONE, encoder.encode({"error": shown}))
    return b"".join(map(event, events))


def error_chunk(identity: ReplyIdentity) -> dict[str, object]:
    """Return the last chunk of a failed stream, without the error."""
    choice = {
        "index": 0,
        "delta": {"content": ""},
        "finish_reason": "error",
        "native_finish_reason": None,
        "logprobs": None,
    }
    return {**reply_fields(identity, CHUNK), "choices": [choice]}


# Chunks


def reply_fields(identity: ReplyIdentity, kind: str) -> dict[str, object]:
    """Return the gateway's own fields of a response or a chunk; `kind` is its `object`."""
    return {
        "id": identity.id,
        "object": kind,
        "created": identity.created,
        "model": identity.model,
        "provider": identity.provider,
    }


def render_chunk(identity: ReplyIdentity, choices: Sequence[object], **more: object) -> bytes:
    """Return a chunk as an event."""
    chunk = {**reply_fields(identity, CHUNK), "choices": choices, **more}
    return event(join_lines(encoder.encode(chunk)))


def render_end(identity: ReplyIdentity, request: Fields, charge: Charge) -> bytes:
    """Return the end of a completed stream: the usage chunk, then `[DONE]`."""
    choices = [] if asks_for_usage(request) else [_EMPTY_CHOICE]
    return render_chunk(identity, choices, usage=render_usage(charge)) + event(DONE)


# Requests


class ChatRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    output_limits = ("max_completion_tokens", "max_tokens")
    answer_counts = ("n",)
    content_field = "messages"

    shows_reasoning: bool = True
    """False: the model may reason, but the response must not show it."""


class _Reasoning(msgspec.Struct):
    effort: str | None = None
    exclude: bool | None = None


_FALSE = msgspec.Raw(b"false")
_reasoning = msgspec.json.Decoder(_Reasoning | None)


def parse_request(body: bytes) -> ChatRequest:
    """Parse a chat request; raises `Invalid`, whose message names the position or the field."""
    fields = read_object(body)
    model = read_model(fields)
    read_messages(fields)
    stream = read_flag(fields, "stream")
    if "reasoning" in fields and "reasoning_effort" in fields:
        _check_efforts(fields)
    return ChatRequest(
        model=model,
        stream=stream,
        fields=fields,
        size=len(body),
        body=body,
        shows_reasoning=_shows_reasoning(fields),
    )


def _shows_reasoning(fields: Fields) -> bool:
    if fields.get("include_reasoning") == _FALSE:
        return False
    if "reasoning" not in fields:
        return True
    # Anything else is passed on unchanged: the provider reports the error.
    given = try_decode(_reasoning, fields["reasoning"])
    return given is None or not given.exclude


def _check_efforts(fields: Fields) -> None:
    """Reject two efforts that differ."""
    wanted = "an object whose effort is a string"
    given = read_field(_reasoning, fields, "reasoning", wanted)
    effort = read_field(text_decoder, fields, "reasoning_effort", "a string")
    if given is not None and given.effort is not None and effort not in {None, given.effort}:
        raise Invalid("reasoning_effort: contradicts reasoning.effort; give one of them.")
