"""OpenAI's chat completions: what the gateway reads and writes of them. Pure.

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
from msgspec import Raw, Struct

from tollhouse.inference.formats.adapter import ClientRequest
from tollhouse.inference.formats.chat_reasoning import (
    check_efforts,
    shows_reasoning,
)
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
    decode_mended,
    encoder,
    fields_decoder,
    join_lines,
    read_flag,
    read_messages,
    read_model,
    read_object,
    render_costs,
    try_decode,
)
from tollhouse.inference.sse import event
from tollhouse.kernel.errors import TollhouseError, error_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.types import ReplyIdentity

_EMPTY_CHOICE: Final[Mapping[str, object]] = {
    "index": 0,
    "delta": {},
    "finish_reason": None,
    "logprobs": None,
}
"""The choice of a chunk without output."""
CHUNK: Final = "chat.completion.chunk"
_ERROR: Final = Raw(b'"error"')
_WITH_ERROR: Final = frozenset({"error", "base_resp"})
_NO_CHOICES: Final = (NULL, Raw(b"[]"))


# What is read


class ChatRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    output_limits = ("max_completion_tokens", "max_tokens")
    answer_counts = ("n",)
    content_field = "messages"

    shows_reasoning: bool = True
    """False: the model may reason, but the response must not show it."""

    @property
    def asks_for_functions(self) -> bool:
        """Whether it asks in the format's first way, and its client reads a `function_call`."""
        return "functions" in self.fields and "tools" not in self.fields


def parse_request(body: bytes) -> ChatRequest:
    """Parse a chat request; raises `Invalid`, whose message names the position or the field."""
    fields = read_object(body)
    model = read_model(fields)
    read_messages(fields)
    if "reasoning" in fields and "reasoning_effort" in fields:
        check_efforts(fields)
    stream = read_flag(fields, "stream")
    return ChatRequest.of(body, fields, model, shows_reasoning(fields), stream=stream)


def decode_reply(decoder: msgspec.json.Decoder[T], data: bytes, problem: str) -> T:
    """Decode a response or a chunk; raises the error in its place, else `MalformedResponse`."""
    if data[:2] == b"[{":
        raise read_error(data)
    try:
        return decode_mended(decoder, data)
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
    if not _WITH_ERROR.isdisjoint(fields) or b'"error"' in data:
        raise_error_within(fields)
    is_error, is_empty = fields.get("object") == _ERROR, fields.get("choices", NULL) in _NO_CHOICES
    if is_error or is_empty:
        raise_error_instead(data, is_error=is_error, is_empty=is_empty)
    return fields


# What is written


class _Options(Struct):
    include_usage: bool | None = None
    include: bool | None = None


_usage_options: Final = msgspec.json.Decoder(_Options | None)


def asks_for_usage(fields: Fields) -> bool:
    """Return whether a request wants the usage in a last chunk without choices.

    The usage is sent in any case; clients that did not ask read the first choice of every chunk.
    OpenAI's option is `stream_options.include_usage`, the public gateway's is `usage.include`.
    """
    names = ("stream_options", "usage")
    given = (try_decode(_usage_options, fields.get(name, NULL)) for name in names)
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


def reply_fields(identity: ReplyIdentity, kind: str) -> dict[str, object]:
    """Return the gateway's own fields of a response or a chunk; `kind` is its `object`."""
    return {
        "id": identity.id,
        "object": kind,
        "created": identity.created,
        "model": identity.model,
        "provider": identity.provider,
    }


def _chunk_of(
    identity: ReplyIdentity, choices: Sequence[object], **more: object
) -> dict[str, object]:
    return {**reply_fields(identity, CHUNK), "choices": choices, **more}


def render_chunk(identity: ReplyIdentity, choices: Sequence[object], **more: object) -> bytes:
    """Return a chunk as an event."""
    return event(join_lines(encoder.encode(_chunk_of(identity, choices, **more))))


def last_choice(index: int, delta: Mapping[str, object], finish_reason: str) -> dict[str, object]:
    """Return the last choice of a chunk where the provider sent none."""
    return {
        "index": index,
        "delta": delta,
        "finish_reason": finish_reason,
        "native_finish_reason": None,
        "logprobs": None,
    }


def render_end(identity: ReplyIdentity, request: Fields, charge: Charge) -> bytes:
    """Return the end of a completed stream: the usage chunk, then `[DONE]`."""
    choices = [] if asks_for_usage(request) else [_EMPTY_CHOICE]
    return render_chunk(identity, choices, usage=render_usage(charge)) + event(DONE)


def render_failure(identity: ReplyIdentity, error: TollhouseError) -> bytes:
    """Return the end of a failed stream of chat chunks."""
    last = last_choice(0, {"content": ""}, "error")
    return render_stream_error(error, _chunk_of(identity, [last]))


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
