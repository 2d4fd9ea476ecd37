"""OpenAI's legacy text completions: passed through, or translated to a chat. Pure.

    chunk* (usage | error) [DONE]

Source: https://platform.openai.com/docs/api-reference/completions/object; a chunk has the same
schema as a complete response.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    ClientRequest,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.canonical import (
    SAMPLING,
    CanonicalEvent,
    CanonicalRequest,
    ChoiceFinished,
    RefusalBlock,
    RefusalDelta,
    TextBlock,
    TextDelta,
    Turn,
)
from tollhouse.inference.formats.chat import (
    asks_for_usage,
    decode_fields,
    render_stream_error,
    render_usage,
    reply_fields,
)
from tollhouse.inference.formats.chat_passthrough import ChunkStream
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.translation import ClientFormat, StreamEncoder
from tollhouse.inference.formats.usage import find_counts, usage_of
from tollhouse.inference.formats.wire import (
    DONE,
    GATEWAY_FIELDS,
    NULL,
    Fields,
    encoder,
    for_provider,
    given_fields,
    is_done,
    join_lines,
    raw,
    read_field,
    read_flag,
    read_id,
    read_model,
    read_object,
    read_typed,
    says_nothing,
    text_decoder,
    texts,
)
from tollhouse.inference.sse import EventParser, is_event_stream
from tollhouse.inference.sse import event as sse_event
from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
from tollhouse.kernel.errors import Invalid, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical import CanonicalResponse, Choice
    from tollhouse.inference.formats.translation import TranslationSource


_prompt = msgspec.json.Decoder(str | list[msgspec.Raw])


class CompletionsRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    output_limits = ("max_tokens",)
    answer_counts = ("n", "best_of")
    content_field = "prompt"


def parse_request(body: bytes) -> CompletionsRequest:
    """Parse a completions request; raises `Invalid`, whose message names the bad field.

    Source: https://platform.openai.com/docs/api-reference/completions/create
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_prompt, fields, "prompt", "a text, a list of texts or lists of tokens", filled=True)
    return CompletionsRequest.of(body, fields, model, stream=read_flag(fields, "stream"))


# Rendering


def _completion(
    identity: ReplyIdentity, choices: Sequence[dict[str, object]], **more: object
) -> dict[str, object]:
    """Return a completion or a chunk."""
    return {**reply_fields(identity, "text_completion"), "choices": choices, **more}


def render_choice(index: int, text: str, finish_reason: str | None) -> dict[str, object]:
    """Return a choice; `tool_calls`, which completions do not have, becomes `stop`.

    Source: https://platform.openai.com/docs/api-reference/completions/object, `finish_reason`.
    """
    ended = _legal(finish_reason)
    return {"index": index, "text": text, "finish_reason": ended, "logprobs": None}


def _legal(finish_reason: str | None) -> str | None:
    return "stop" if finish_reason == "tool_calls" else finish_reason


def _render_end(identity: ReplyIdentity, request: Fields, charge: Charge) -> bytes:
    """Return the end of a completed stream: the usage chunk, then `[DONE]`."""
    choices = [] if asks_for_usage(request) else [render_choice(0, "", None)]
    last = _completion(identity, choices, usage=render_usage(charge))
    return sse_event(encoder.encode(last)) + sse_event(DONE)


def _render_failure(identity: ReplyIdentity, error: TollhouseError) -> bytes:
    return render_stream_error(error, _completion(identity, [render_choice(0, "", "error")]))


class CompletionsStreamEncoder(StreamEncoder):
    """Encodes a stream as chunks."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        self._request = source.request.fields
        self._identity = identity
        self._finished: set[int] = set()

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the chunk of an event; empty unless it is text or the end of a choice."""
        if isinstance(event, (TextDelta, RefusalDelta)):
            choice = render_choice(event.choice, event.text, None)
        elif isinstance(event, ChoiceFinished):
            choice = render_choice(event.choice, "", event.finish_reason)
        else:
            return b""
        if event.choice in self._finished:
            raise MalformedResponse("a choice goes on after its end")
        if isinstance(event, ChoiceFinished):
            self._finished.add(event.choice)
        return sse_event(encoder.encode(_completion(self._identity, [choice])))

    def _end(self, charge: Charge) -> bytes:
        return _render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return _render_failure(self._identity, error)


# Pass-through


class _Choice(msgspec.Struct):
    text: str = ""
    index: int = 0
    finish_reason: str | None = None


_logprobs: Final = msgspec.json.Decoder(dict[str, list[Raw] | None])
_given_choices: Final = msgspec.json.Decoder(list[Fields])
_choices: Final = msgspec.json.Decoder(list[_Choice] | None)


def _output_bytes(choice: _Choice) -> int:
    return len(choice.text.encode())


class CompletionsPassthroughAdapter(PassthroughAdapter[CompletionsRequest]):
    """Passes requests through to providers of the dialect."""

    dialect = Dialect.COMPLETIONS

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name."""
        refuses = endpoint.profile.refuses
        rejected = GATEWAY_FIELDS | refuses if refuses else GATEWAY_FIELDS
        fields = for_provider(self._request.whole(body), rejected, endpoint.model)
        if self._request.stream and endpoint.profile.usage_in_streams:
            fields["stream_options"] = {"include_usage": True}
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> CompletionsResponse:
        """Parse a provider's complete response."""
        fields, choices, upstream_id = _read(_joined(body) if is_event_stream(body) else body)
        if not choices:
            raise MalformedResponse("the reply has no choices")
        reported, seen = counted(
            usage_of(find_counts(fields)),
            self._request.size,
            lambda: sum(map(_output_bytes, choices)),
        )
        return CompletionsResponse(
            reported=reported,
            seen=seen,
            finish_reason=normalize_finish_reason(choices[0].finish_reason),
            native_finish_reason=choices[0].finish_reason,
            upstream_id=upstream_id,
            fields=fields,
        )

    def open_stream(self, identity: ReplyIdentity) -> CompletionsStream:
        """Return the adapter of one streamed response."""
        return CompletionsStream(identity, self._request)


@dataclass(slots=True, repr=False)
class CompletionsResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        ours = reply_fields(identity, "text_completion")
        fields = _with_known_ends(self.fields)
        return encoder.encode({**fields, **ours, "usage": render_usage(charge)})


class CompletionsStream(ChunkStream):
    """A provider's stream, forwarded with the gateway's own fields."""

    def _chunk(self, data: bytes) -> bytes:
        fields, choices, upstream_id = _read(data)
        self._report(find_counts(fields))
        fields.pop("usage", None)
        self.upstream_id = self.upstream_id or upstream_id
        for choice in choices:
            self._follow(choice.index, len(choice.text.encode()), choice.finish_reason)
        if any(choice.finish_reason is not None for choice in choices):
            fields = _with_known_ends(fields)
        ours = reply_fields(self._identity, "text_completion")
        return sse_event(encoder.encode({**fields, **ours})) if choices else b""

    def _end_of_choice(self, index: int, finish_reason: str) -> bytes:
        choice = render_choice(index, "", finish_reason)
        return sse_event(encoder.encode(_completion(self._identity, [choice])))

    def _end(self, charge: Charge) -> bytes:
        return _render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return _render_failure(self._identity, error)


def _with_known_ends(fields: Fields) -> Fields:
    """Return a completion or a chunk whose finish reasons are words that clients know."""
    choices = _given_choices.decode(fields["choices"])
    for choice in choices:
        native = text_decoder.decode(choice.get("finish_reason", NULL))
        choice["finish_reason"] = raw(_legal(normalize_finish_reason(native)))
    return {**fields, "choices": raw(choices)}


def _joined(body: bytes) -> bytes:
    """Return the completion that a stream says which came in place of it."""
    try:
        return _whole_of(body)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("the stream in place of a reply is none of completions") from None


def _whole_of(body: bytes) -> bytes:
    parser, ended = EventParser(), False
    reply: Fields = {}
    told: dict[int, Fields] = {}
    texts_of: dict[int, list[str]] = {}
    for data in (*parser.feed(body), *parser.end()):
        ended = ended or is_done(data)
        if is_done(data) or says_nothing(data):
            continue
        fields, choices, _ = _read(join_lines(data))
        given = _given_choices.decode(fields.get("choices", NULL))
        for position, (choice, written) in enumerate(zip(choices, given, strict=True)):
            index = choice.index or position
            said = {name: value for name, value in written.items() if value != NULL}
            before = told.get(index, {})
            if "logprobs" in said.keys() & before.keys():
                said["logprobs"] = _added(before["logprobs"], said["logprobs"])
            told[index] = before | said
            texts_of.setdefault(index, []).append(choice.text)
        reply |= {name: value for name, value in fields.items() if value != NULL}
    whole = [told[index] | {"text": raw("".join(texts_of[index]))} for index in sorted(told)]
    if ended:
        whole = [{"finish_reason": raw("stop")} | each for each in whole]
    if not whole or any("finish_reason" not in each for each in whole):
        raise MalformedResponse("the stream in place of a reply is not complete")
    return encoder.encode(reply | {"choices": raw(whole)})


def _added(first: Raw, second: Raw) -> Raw:
    """Return the log-probabilities of two pieces, each with a list of every kind."""
    lists = _logprobs.decode(first)
    for name, more in _logprobs.decode(second).items():
        lists[name] = [*(lists.get(name) or ()), *(more or ())]
    return raw(lists)


def _read(data: bytes) -> tuple[Fields, Sequence[_Choice], str | None]:
    try:
        fields = decode_fields(data)
        return fields, _choices.decode(fields.get("choices", NULL)) or (), read_id(fields)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("the reply is no completion") from None


# Translation; the prompt becomes the only user message

_NOT_OF_COMPLETIONS: Final = {"top_a", "prompt_cache_key", "service_tier", "safety_identifier"}
_SAMPLING: Final = tuple(name for name in SAMPLING if name not in _NOT_OF_COMPLETIONS)


class _Body(Struct):
    prompt: str | list[str]
    stream: bool | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    stop: str | list[str] | None = None
    n: Annotated[int, Meta(ge=1)] | None = None
    user: str | None = None


_body: Final = msgspec.json.Decoder(_Body)


def parse_canonical_request(request: CompletionsRequest, body: bytes) -> CanonicalRequest:
    """Convert a completions request; raises `Invalid` if a field is of the wrong type.

    Chat models take neither several prompts nor token ids.
    """
    read = read_typed(_body, body)
    prompts = texts(read.prompt)
    if len(prompts) != 1:
        raise Invalid("prompt: this model takes one text at a time; send a request for each.")
    return CanonicalRequest(
        turns=(Turn("user", (TextBlock(prompts[0]),)),),
        stream=bool(read.stream),
        max_tokens=read.max_tokens,
        stop=texts(read.stop),
        choices=read.n,
        user=read.user,
        sampling=given_fields(request.fields, _SAMPLING),
    )


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return a text completion."""
    del source
    choices = [
        render_choice(choice.index, _said(choice), choice.finish_reason) for choice in reply.choices
    ]
    return encoder.encode(_completion(identity, choices, usage=render_usage(charge)))


def _said(choice: Choice) -> str:
    return "".join(
        each.text for each in choice.blocks if isinstance(each, (TextBlock, RefusalBlock))
    )


COMPLETIONS_CLIENT: Final = ClientFormat(
    parse_canonical_request, render_response, CompletionsStreamEncoder
)
