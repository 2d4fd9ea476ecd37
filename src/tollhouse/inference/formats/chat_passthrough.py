"""Passes chat requests through to providers of the chat dialect. Pure.

Only the gateway's own fields are changed. Whatever the provider sends, the client's stream is
`chunk* (usage | error) [DONE]`: the provider's usage is held back to the end and priced, its
`[DONE]` is not forwarded.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.canonical.types import ReasoningParameter, usual_effort
from tollhouse.inference.formats.chat import (
    CHUNK,
    ChatDelta,
    ChatRequest,
    choices_decoder,
    chunk_choices_decoder,
    decode_fields,
    error_chunk,
    message_bytes,
    output_bytes,
    render_chunk,
    render_end,
    render_stream_error,
    render_usage,
    reply_fields,
)
from tollhouse.inference.formats.chat_calls import CallOrder, names_in
from tollhouse.inference.formats.chat_reasoning import (
    may_change,
    own_messages,
    shown_message,
)
from tollhouse.inference.formats.event_template import EventTemplate
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.usage import find_counts, usage_of
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NULL,
    Fields,
    encoder,
    fields_decoder,
    for_provider,
    is_done,
    join_lines,
    raw,
    read_id,
    says_nothing,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.inference.sse import event
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.adapter import ClientRequest
    from tollhouse.inference.formats.chat import ChunkChoice
    from tollhouse.kernel.errors import TollhouseError


# Requests and responses


_OUTPUT_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
_ASSISTANT = msgspec.Raw(b'"assistant"')
_reasoning = msgspec.json.Decoder(ReasoningParameter | None)
_EFFORT_ALONE = frozenset({"effort", "exclude", "summary"})
"""Of `reasoning`, what `reasoning_effort` says or the gateway does itself."""
_options = msgspec.json.Decoder(Fields | None)
_index = msgspec.json.Decoder(int)


@dataclass(slots=True, repr=False)
class ChatResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields
    choices: list[Fields]
    hides_reasoning: bool

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        fields: Mapping[str, object] = {
            "system_fingerprint": NULL,
            **self.fields,
            **reply_fields(identity, "chat.completion"),
            "choices": [
                {**each, "message": _shown(each["message"], identity, hides=self.hides_reasoning)}
                for each in self.choices
            ],
            "usage": render_usage(charge),
        }
        return encoder.encode(fields)


def _renamed_fields(fields: Fields, profile: Profile) -> Fields:
    """Return the fields that a provider accepts; two are sent under its own name."""
    rejected = profile.refused_in_chat
    accepted = without(fields, rejected)
    if profile.output_limit not in rejected:
        for name in _OUTPUT_LIMITS & rejected & fields.keys():
            accepted.setdefault(profile.output_limit, fields[name])
    if "reasoning" in fields and not profile.takes_extensions:
        _rename_effort(accepted, fields["reasoning"], rejected)
    return accepted


def _rename_effort(accepted: Fields, given: Raw, rejected: frozenset[str]) -> None:
    """Say the effort in OpenAI's field; what that field cannot say stays in `reasoning`, too."""
    # A provider would reject what is not of the type; nothing else depends on it.
    reasoning = try_decode(_reasoning, given)
    effort = None if reasoning is None else usual_effort(reasoning.options())
    if effort is None or "reasoning_effort" in rejected:
        return
    if accepted.get("reasoning_effort", NULL) == NULL:
        accepted["reasoning_effort"] = raw(effort)
    if (try_decode(_options, given) or {}).keys() <= _EFFORT_ALONE:
        accepted.pop("reasoning", None)


def _shown(message: Raw, identity: ReplyIdentity, *, hides: bool) -> Fields:
    """Return a message as the client gets it."""
    shown = shown_message(fields_decoder.decode(message), identity.maker, hides=hides)
    return {"role": _ASSISTANT, "content": NULL, "refusal": NULL, **shown}


def _choice(choice: Fields, index: int, *, keeps: bool) -> Fields:
    """Return a choice with all fields; `keeps` the call of a client that asked for functions."""
    native = choice.get("finish_reason", NULL)
    # It has ended, or it would not be whole.
    reason = text_decoder.decode(native) or "stop"
    message = choice["message"]
    said = _delta.decode(message)
    if called := said.calls:
        fields = without(fields_decoder.decode(message), set() if keeps else {"function_call"})
        if not keeps or said.tool_calls != NULL:
            fields["tool_calls"] = said.whole()
        message = raw(fields)
    return {
        "logprobs": NULL,
        **choice,
        "message": message,
        "index": raw(index) if choice.get("index", NULL) == NULL else choice["index"],
        "finish_reason": raw(normalize_finish_reason(reason, called=called)),
        "native_finish_reason": choice.get("native_finish_reason", native),
    }


def _asks_for_functions(fields: Fields) -> bool:
    """Tell whether a client asks in the format's first way, and reads its `function_call`."""
    return "functions" in fields and "tools" not in fields


# Streams

_index = msgspec.json.Decoder(int)
_NO_CHOICES = msgspec.Raw(b"[]")


class ChunkStream(AdaptedStream):
    """A stream of chunks with choices, which ends with `[DONE]`."""

    def __init__(self, identity: ReplyIdentity, request: ClientRequest) -> None:
        super().__init__(request.size)
        self._identity = identity
        self._request = request.fields
        self._unfinished: set[int] = set()
        self._called: set[int] = set()
        """Choices with tool calls."""

    @property
    def complete(self) -> bool:
        """Whether every choice finished; after `[DONE]`, whether there was any output."""
        if self.finish_reason is not None and not self._unfinished:
            return True
        return self.done and (self.finish_reason is not None or self._seen_bytes > 0)

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        if self.done:
            self._report(find_counts(try_decode(fields_decoder, data) or {}))
            return b""
        if says_nothing(data):
            return b""
        if is_done(data):
            self.done = True
            return self._finish_rest()
        return self._chunk(join_lines(data))

    def _finish_rest(self) -> bytes:
        """Return the ends of choices that spoke, where the provider's stream ended without them."""
        if not self._seen_bytes or self.finish_reason is not None:
            return b""
        ends: list[bytes] = []
        for index in sorted(self._unfinished):
            if self._is_whole(index):
                self.finish_reason = "tool_calls" if index in self._called else "stop"
                ends.append(self._end_of_choice(index, self.finish_reason))
        return b"".join(ends)

    def _is_whole(self, index: int) -> bool:
        """Tell whether a choice may have ended here."""
        del index
        return True

    @abstractmethod
    def _end_of_choice(self, index: int, finish_reason: str) -> bytes: ...

    @abstractmethod
    def _chunk(self, data: bytes) -> bytes: ...

    def _follow(
        self, index: int, size: int, native_finish_reason: str | None, *, called: bool = False
    ) -> None:
        """Note what a chunk says of one choice: bytes of output, calls, or its end."""
        self._seen_bytes += size
        if called:
            self._called.add(index)
        if native_finish_reason:
            self._unfinished.discard(index)
            self.native_finish_reason = native_finish_reason
            self.finish_reason = normalize_finish_reason(
                native_finish_reason, called=index in self._called
            )
        else:
            self._unfinished.add(index)


class ChatStream(ChunkStream):
    """A provider's stream, forwarded with the gateway's own fields."""

    def __init__(self, identity: ReplyIdentity, request: ChatRequest) -> None:
        super().__init__(identity, request)
        self._hides_reasoning = not request.shows_reasoning
        ours = reply_fields(identity, CHUNK)
        self._ours: Fields = {name: raw(value) for name, value in ours.items()}
        self._orders: dict[int, CallOrder] = {}
        """The tool calls of each choice."""
        self._keeps = _asks_for_functions(request.fields)
        self._spoken: set[int] = set()
        """Choices with deltas, of which a message is a repetition."""
        self._thought: set[int] = set()
        """Choices with reasoning."""
        self._before: Fields = {}
        """The last chunk that needed no change, as it was shown."""
        self._template: _ChunkTemplate | None = None
        self._lessons = _MOST_LESSONS
        """How many templates are tried before one fits."""

    def _end(self, charge: Charge) -> bytes:
        return render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return render_stream_error(error, error_chunk(self._identity))

    def _is_whole(self, index: int) -> bool:
        order = self._orders.get(index)
        return not order or order.complete

    def _end_of_choice(self, index: int, finish_reason: str) -> bytes:
        order = self._orders.get(index)
        calls = [part.rendered() for part in order.end()] if order is not None else []
        choice = {
            "index": index,
            "delta": {"tool_calls": calls} if calls else {},
            "finish_reason": finish_reason,
            "native_finish_reason": None,
            "logprobs": None,
        }
        return render_chunk(self._identity, [choice])

    def _chunk(self, data: bytes) -> bytes:
        template = self._template
        if template is not None and (same := template.read(data)) is not None:
            delta, shown = same
            repaired = self._repaired(template.choice, delta, None) if delta.calls else None
            if repaired is None:
                self._lessons = _MOST_LESSONS
                self._follow(template.choice, output_bytes(delta), None, called=delta.calls)
                return shown
            return self._forward(decode_fields(data), data, repaired)
        try:
            return self._forward(decode_fields(data), data)
        except (msgspec.DecodeError, RecursionError):
            raise MalformedResponse("an event of the stream is not a chat chunk") from None

    def _said(
        self, index: int, delta: ChatDelta | None, message: ChatDelta | None
    ) -> ChatDelta | None:
        """Return a delta, or what a message in its place says that was not said before."""
        if message is None or not (delta is None or delta.is_silent):
            if delta is not None and index not in self._spoken and not delta.is_silent:
                self._spoken.add(index)
            return delta
        if index not in self._spoken:
            return message
        if index in self._orders:
            return _REPEATED
        return ChatDelta(tool_calls=message.tool_calls, function_call=message.function_call)

    def _repaired(
        self, index: int, delta: ChatDelta | None, finish_reason: str | None
    ) -> list[Fields] | None:
        """Return a delta's tool calls as OpenAI would write them; None if they are like that."""
        order = self._orders.get(index)
        if delta is not None and (not delta.calls or (self._keeps and delta.tool_calls == NULL)):
            delta = None
        if order is None and delta is not None:
            order = CallOrder(names_in(self._request.get("tools", NULL)))
            self._orders[index] = order
        if order is None or (delta is None and not finish_reason):
            return None
        return order.rewritten(delta, ended=finish_reason is not None)

    def _forward(self, fields: Fields, data: bytes, repaired: list[Fields] | None = None) -> bytes:
        if fields.get("system_fingerprint") == NULL:
            # Published clients accept null in a complete response, but only a string in a chunk.
            del fields["system_fingerprint"]
        self._report(find_counts(fields))
        fields.pop("usage", None)
        if self.upstream_id is None:
            self.upstream_id = read_id(fields)
        given = fields.get("choices", _NO_CHOICES)
        choices = chunk_choices_decoder.decode(given)
        if not choices:
            return b""
        needs_change = self._hides_reasoning
        calls: dict[int, list[Fields]] = {} if repaired is None else {0: repaired}
        for position, choice in enumerate(choices):
            index = position if choice.index is None else choice.index
            delta = self._said(index, choice.delta, choice.message)
            if repaired is None and (choice.finish_reason or (delta and delta.calls)):
                written = self._repaired(index, delta, choice.finish_reason or None)
                if written is not None:
                    calls[position] = written
            if delta is _REPEATED:
                calls.setdefault(position, [])
            self._follow(
                index,
                0 if delta is None else output_bytes(delta),
                choice.finish_reason or None,
                called=delta is not None and delta.calls,
            )
            needs_change = needs_change or position in calls or not _needs_no_change(choice)
        fields |= self._ours
        if needs_change:
            decoded = enumerate(choices_decoder.decode(given))
            patched = [self._patched(each, at, calls.get(at)) for at, each in decoded]
            fields["choices"] = raw(patched)
            return event(encoder.encode(fields))
        shown = event(encoder.encode(fields))
        if len(choices) == 1 and self._lessons and self._before.keys() == fields.keys():
            self._lessons -= 1
            self._template = _ChunkTemplate.of(data, shown, self._before, fields)
            self._spoken.add(choices[0].index or 0)
        self._before = fields
        return shown

    def _patched(self, choice: Fields, position: int, calls: list[Fields] | None) -> Fields:
        native = choice.get("finish_reason", NULL)
        if choice.get("index", NULL) == NULL:
            choice["index"] = raw(position)
        index = _index.decode(choice["index"])
        given = choice.get("delta", NULL)
        delta = {} if given == NULL else fields_decoder.decode(given)
        if (instead := choice.pop("message", NULL)) != NULL and _delta.decode(raw(delta)).is_silent:
            said = fields_decoder.decode(instead)
            names = said.keys() & _CALL_FIELDS if index in self._spoken else said.keys()
            delta |= {name: said[name] for name in names}
        if calls is not None:
            delta = without(delta, _CALL_FIELDS) | ({"tool_calls": raw(calls)} if calls else {})
        maker = self._identity.maker
        shown = shown_message(
            delta, maker, hides=self._hides_reasoning, tells_field=index not in self._thought
        )
        if "reasoning" in shown:
            self._thought.add(index)
        choice["delta"] = raw(shown)
        called = index in self._called
        choice["finish_reason"] = raw(
            normalize_finish_reason(text_decoder.decode(native), called=called)
        )
        choice.setdefault("native_finish_reason", native)
        return choice


_REPEATED = ChatDelta()
"""What a message says that only repeats the deltas before it."""
_MOST_LESSONS = 2
_any = msgspec.json.Decoder(msgspec.Raw)
_CALL_FIELDS = frozenset({"tool_calls", "function_call"})
_delta = msgspec.json.Decoder(ChatDelta)


class _ChunkTemplate:
    """What chunks of one choice have in common that need no change."""

    def __init__(
        self, names: Sequence[str], choice: int, given: EventTemplate, shown: EventTemplate
    ) -> None:
        self.choice = choice
        self._delta_at = names.index("delta")
        self._others = [at for at, name in enumerate(names) if name != "delta"]
        self._given = given
        self._shown = shown

    @classmethod
    def of(cls, data: bytes, shown: bytes, before: Fields, fields: Fields) -> Self | None:
        """Return what a chunk has in common with the one before, which has the same fields."""
        (choice,) = choices_decoder.decode(fields["choices"])
        values: Fields = {}
        for name, value in fields.items():
            if name == "choices":
                values["delta"] = choice["delta"]
            elif value != before[name]:
                values[name] = value
        given, ours = EventTemplate.of(data, values), EventTemplate.of(shown, values)
        if given is None or ours is None:
            return None
        return cls(list(values), _index.decode(choice["index"]), given, ours)

    def read(self, data: bytes) -> tuple[ChatDelta, bytes] | None:
        """Return the delta of a chunk of the same kind, and what the client gets of it.

        None if it may be of another kind.
        """
        values = self._given.values(data)
        if values is None:
            return None
        try:
            if not data.isascii():
                data.decode()
            delta = _delta.decode(values[self._delta_at])
            for at in self._others:
                value = values[at]
                # A null may have to be left out, and spaces around a value have to.
                if value == b"null" or len(_any.decode(value)) != len(value):
                    return None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return None if delta.needs_change else (delta, self._shown.fill(values))


def _needs_no_change(choice: ChunkChoice) -> bool:
    """Return whether a choice needs no change: it has all required fields and is not the last."""
    return (
        choice.finish_reason is None
        and choice.index is not None
        and choice.message is None
        and choice.delta is not None
        and not choice.delta.needs_change
    )


# The adapter


class ChatPassthroughAdapter(PassthroughAdapter[ChatRequest]):
    """Passes requests through to providers of the chat dialect."""

    dialect = Dialect.CHAT

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the fields that the provider rejects and has no other name for."""
        renamed = {"reasoning"}
        if endpoint.profile.output_limit not in endpoint.profile.refused_in_chat:
            renamed |= _OUTPUT_LIMITS
        return (self._request.fields.keys() & endpoint.profile.refused_in_chat) - renamed

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway and fields that the provider rejects are left out. A stream requests
        its usage if the provider supports that.
        """
        request, profile = self._request, endpoint.profile
        given, refused = request.fields, profile.refused_in_chat
        if refused or "reasoning" in given:
            given = _renamed_fields(given, profile)
        fields = for_provider(given, GATEWAY_FIELDS, endpoint.model)
        if may_change(request.body):
            fields["messages"] = own_messages(given["messages"], endpoint)
        if request.stream and profile.usage_in_streams and "stream_options" not in refused:
            # A provider would reject what is not of the type; the stream does not depend on it.
            options: Fields = try_decode(_options, given.get("stream_options", NULL)) or {}
            fields["stream_options"] = {**options, "include_usage": True}
        else:
            fields.pop("stream_options", None)
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> ChatResponse:
        """Parse a provider's complete response."""
        try:
            fields = decode_fields(body)
            choices = choices_decoder.decode(fields["choices"])
            native = text_decoder.decode(choices[0].get("finish_reason", NULL))
            upstream_id = read_id(fields)
            keeps = _asks_for_functions(self._request.fields)
            patched = [_choice(choice, at, keeps=keeps) for at, choice in enumerate(choices)]
        except (msgspec.DecodeError, RecursionError, KeyError, IndexError):
            raise MalformedResponse("the reply is not a chat completion") from None
        reported, seen = counted(
            usage_of(find_counts(fields)),
            self._request.size,
            lambda: sum(message_bytes(choice["message"]) for choice in choices),
        )
        return ChatResponse(
            reported=reported,
            seen=seen,
            # Nothing at all, and nobody said why, is not charged.
            finish_reason=text_decoder.decode(patched[0]["finish_reason"])
            if native or message_bytes(choices[0]["message"])
            else None,
            native_finish_reason=native,
            upstream_id=upstream_id,
            fields=fields,
            choices=patched,
            hides_reasoning=not self._request.shows_reasoning,
        )

    def open_stream(self, identity: ReplyIdentity) -> ChatStream:
        """Return the adapter of one streamed response."""
        return ChatStream(identity, self._request)
