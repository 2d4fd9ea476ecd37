"""Passes chat requests through to providers of the chat format. Pure.

Of what is passed through only the gateway's own fields are changed; all else stays raw. Whatever
the provider sends, the client's stream is `chunk* (usage | error) [DONE]`: the provider's usage is
held back to the end and priced, its `[DONE]` is not forwarded.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    ClientRequest,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.chat import (
    CHUNK,
    ChatRequest,
    decode_fields,
    last_choice,
    render_chunk,
    render_end,
    render_failure,
    render_usage,
    reply_fields,
)
from tollhouse.inference.formats.chat_calls import CallOrder, names_in
from tollhouse.inference.formats.chat_chunks import (
    ChatDelta,
    ChunkChoice,
    ChunkTemplate,
    ReplyChoice,
    choices_decoder,
    reply_choices,
)
from tollhouse.inference.formats.chat_reasoning import (
    is_plain,
    may_change,
    own_messages,
    rename_effort,
    shown_message,
)
from tollhouse.inference.formats.finish_reasons import final_reason, normalize_finish_reason
from tollhouse.inference.formats.usage import find_counts, usage_of
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NO_FIELDS,
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
    text_bytes,
    try_decode,
    without,
)
from tollhouse.inference.sse import event
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical import FinishReason
    from tollhouse.kernel.errors import TollhouseError


_fields: Final = msgspec.json.Decoder(Fields | None)
_chunk_choices: Final = msgspec.json.Decoder(list[ChunkChoice] | None)


class ChatPassthroughAdapter(PassthroughAdapter[ChatRequest]):
    """Passes requests through to providers of the chat dialect."""

    dialect = Dialect.CHAT

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the fields that the provider rejects and has no other name for."""
        renamed = {"reasoning"}
        if endpoint.profile.output_limit not in endpoint.profile.refused_in_chat:
            renamed |= _OUTPUT_LIMITS
        return (self._request.fields.keys() & endpoint.profile.refused_in_chat) - renamed

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway and fields that the provider rejects are left out. A stream requests
        its usage if the provider supports that.
        """
        request, profile = self._request, endpoint.profile
        refused = profile.refused_in_chat
        reports = request.stream and profile.usage_in_streams and "stream_options" not in refused
        added, left_out = (_REPORTS, _CHANGED) if reports else (NO_FIELDS, _CHANGED_OR_OPTIONS)
        if plain := is_plain(body):
            left_out = left_out | refused if refused else left_out
            passed = request.passed_on(body, endpoint.model, left_out, added)
            if passed is not None:
                return passed
        given = request.whole(body)
        if refused or "reasoning" in given:
            given = _accepted_fields(given, profile)
        fields = for_provider(given, GATEWAY_FIELDS, endpoint.model)
        if not plain and may_change(body):
            fields["messages"] = own_messages(given["messages"], endpoint)
        if reports:
            # A provider would reject what is not of the type; the stream does not depend on it.
            options: Fields = try_decode(_fields, given.get("stream_options", NULL)) or {}
            fields["stream_options"] = {**options, "include_usage": True}
        else:
            fields.pop("stream_options", None)
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> ChatResponse:
        """Parse a provider's complete response."""
        keeps = self._request.asks_for_functions
        try:
            fields = decode_fields(body)
            said = reply_choices.decode(fields["choices"])
            choices = choices_decoder.decode(fields["choices"])
            reasons: list[FinishReason] = [
                _repaired(*each, keeps=keeps) for each in zip(choices, said, strict=True)
            ]
            first, upstream_id = said[0], read_id(fields)
        except (msgspec.DecodeError, RecursionError, KeyError, IndexError):
            raise MalformedResponse("the reply is not a chat completion") from None
        reported, seen = counted(
            usage_of(find_counts(fields)),
            self._request.size,
            lambda: sum(each.message.size for each in said),
        )
        # Nothing at all, and nobody said why, is not charged.
        speaks = first.finish_reason or first.message.size
        return ChatResponse(
            reported=reported,
            seen=seen,
            finish_reason=reasons[0] if speaks else None,
            native_finish_reason=first.finish_reason,
            upstream_id=upstream_id,
            fields=fields,
            choices=choices,
            reasons=reasons,
            hides_reasoning=not self._request.shows_reasoning,
        )

    def open_stream(self, identity: ReplyIdentity) -> ChatStream:
        """Return the adapter of one streamed response."""
        return ChatStream(identity, self._request)


_CHANGED: Final = GATEWAY_FIELDS | {"reasoning"}
_CHANGED_OR_OPTIONS: Final = _CHANGED | {"stream_options"}
_REPORTS: Final[Mapping[str, Raw]] = {"stream_options": Raw(b'{"include_usage":true}')}
_OUTPUT_LIMITS: Final = frozenset({"max_tokens", "max_completion_tokens"})


def _accepted_fields(fields: Fields, profile: Profile) -> Fields:
    """Return the fields that a provider accepts; two are sent under its own name."""
    rejected = profile.refused_in_chat
    accepted = without(fields, rejected)
    if profile.output_limit not in rejected:
        for name in _OUTPUT_LIMITS & rejected & fields.keys():
            accepted.setdefault(profile.output_limit, fields[name])
    if "reasoning" in fields and not profile.takes_extensions:
        rename_effort(accepted, fields["reasoning"], rejected)
    return accepted


# Whole replies


@dataclass(slots=True, repr=False)
class ChatResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields
    choices: list[Fields]
    reasons: Sequence[FinishReason]
    """Why each choice ended."""
    hides_reasoning: bool

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        fields: Mapping[str, object] = {
            "system_fingerprint": NULL,
            **self.fields,
            **reply_fields(identity, "chat.completion"),
            "choices": [self._choice(at, identity.maker) for at in range(len(self.choices))],
            "usage": render_usage(charge),
        }
        return encoder.encode(fields)

    def _choice(self, position: int, maker: str) -> dict[str, object]:
        """Return a choice with all fields."""
        choice = self.choices[position]
        given = fields_decoder.decode(choice["message"])
        message = shown_message(given, maker, hides=self.hides_reasoning)
        index, native = choice.get("index", NULL), choice.get("finish_reason", NULL)
        return {
            "logprobs": NULL,
            **choice,
            "message": {"role": _ASSISTANT, "content": NULL, "refusal": NULL, **message},
            "index": position if index == NULL else index,
            "finish_reason": self.reasons[position],
            "native_finish_reason": choice.get("native_finish_reason", native),
        }


_ASSISTANT: Final = Raw(b'"assistant"')


def _repaired(choice: Fields, said: ReplyChoice, *, keeps: bool) -> FinishReason:
    """Have a complete reply's choice call as OpenAI's do; return why it ended.

    It `keeps` the call of a client that asked for functions.
    """
    called = said.message.calls
    if called:
        message = fields_decoder.decode(choice["message"])
        fields = without(message, set() if keeps else {"function_call"})
        if not keeps or said.message.tool_calls != NULL:
            fields["tool_calls"] = said.message.whole()
        choice["message"] = raw(fields)
    return final_reason(said.finish_reason, called=called)


# Streams


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

    def _follow(self, index: int, size: int, native: str | None, *, called: bool = False) -> None:
        """Note what a chunk says of one choice: bytes of output, calls, or its end."""
        self._seen_bytes += size
        if called:
            self._called.add(index)
        if native:
            self._unfinished.discard(index)
            self.native_finish_reason = native
            self.finish_reason = normalize_finish_reason(native, called=index in self._called)
        else:
            self._unfinished.add(index)


class ChatStream(ChunkStream):
    """A provider's stream, forwarded with the gateway's own fields."""

    def __init__(self, identity: ReplyIdentity, request: ChatRequest) -> None:
        super().__init__(identity, request)
        self._hides_reasoning = not request.shows_reasoning
        self._keeps = request.asks_for_functions
        ours = reply_fields(identity, CHUNK)
        self._ours: Fields = {name: raw(value) for name, value in ours.items()}
        self._orders: dict[int, CallOrder] = {}
        """The tool calls of each choice."""
        self._spoken: set[int] = set()
        """Choices with deltas, of which a message is a repetition."""
        self._thought: set[int] = set()
        """Choices with reasoning."""
        self._before: Fields = {}
        """The last chunk that needed no change, as it was shown."""
        self._template: ChunkTemplate | None = None
        self._lessons = _MOST_LESSONS
        """How many templates are tried before one fits."""

    def _end(self, charge: Charge) -> bytes:
        return render_end(self._identity, self._request, charge)

    def _fail(self, error: TollhouseError) -> bytes:
        return render_failure(self._identity, error)

    def _is_whole(self, index: int) -> bool:
        order = self._orders.get(index)
        return not order or order.complete

    def _end_of_choice(self, index: int, finish_reason: str) -> bytes:
        order = self._orders.get(index)
        calls = [part.rendered() for part in order.end()] if order is not None else []
        delta = {"tool_calls": calls} if calls else {}
        return render_chunk(self._identity, [last_choice(index, delta, finish_reason)])

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        template = self._template
        if template is None or self.done or (same := template.read(data)) is None:
            return super().feed(data)
        said, shown = same
        if isinstance(said, str):
            self._seen_bytes += text_bytes(said)
            self._unfinished.add(template.choice)
        else:
            called = said.calls
            repaired = self._repaired(template.choice, said, None) if called else None
            if repaired is not None:
                return self._chunk(data, repaired)
            self._follow(template.choice, said.size, None, called=called)
        self._lessons = _MOST_LESSONS
        return shown

    def _chunk(self, data: bytes, repaired: list[Fields] | None = None) -> bytes:
        try:
            return self._forward(decode_fields(data), data, repaired)
        except (msgspec.DecodeError, RecursionError):
            raise MalformedResponse("an event of the stream is not a chat chunk") from None

    def _said(self, index: int, choice: ChunkChoice) -> ChatDelta | None:
        """Return a delta, or what a message in its place says that was not said before."""
        delta, message = choice.delta, choice.message
        if message is None or (delta is not None and not delta.is_silent):
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

    def _forward(self, fields: Fields, data: bytes, repaired: list[Fields] | None) -> bytes:
        if fields.get("system_fingerprint") == NULL:
            # Published clients accept null in a complete response, but only a string in a chunk.
            del fields["system_fingerprint"]
        self._report(find_counts(fields))
        fields.pop("usage", None)
        if self.upstream_id is None:
            self.upstream_id = read_id(fields)
        given = fields.get("choices", NULL)
        choices = _chunk_choices.decode(given)
        if not choices:
            return b""
        needs_change = self._hides_reasoning
        calls: dict[int, list[Fields]] = {} if repaired is None else {0: repaired}
        for position, choice in enumerate(choices):
            index = position if choice.index is None else choice.index
            delta, native = self._said(index, choice), choice.finish_reason or None
            called = delta is not None and delta.calls
            if repaired is None and (native or called):
                written = self._repaired(index, delta, native)
                if written is not None:
                    calls[position] = written
            if delta is _REPEATED:
                calls.setdefault(position, [])
            self._follow(index, 0 if delta is None else delta.size, native, called=called)
            needs_change = needs_change or position in calls or choice.needs_change
        fields |= self._ours
        if needs_change:
            patched = [
                self._patched(each, choices[at], at, calls.get(at))
                for at, each in enumerate(choices_decoder.decode(given))
            ]
            fields["choices"] = raw(patched)
            return event(encoder.encode(fields))
        shown = event(encoder.encode(fields))
        if len(choices) == 1 and self._lessons and self._before.keys() == fields.keys():
            self._lessons -= 1
            self._template = ChunkTemplate.of(data, shown, self._before, fields)
            self._spoken.add(choices[0].index or 0)
        self._before = fields
        return shown

    def _patched(
        self, choice: Fields, read: ChunkChoice, position: int, calls: list[Fields] | None
    ) -> Fields:
        """Return a choice as clients read it; with these calls, if any are not as they were."""
        index, native = read.index, choice.get("finish_reason", NULL)
        if index is None:
            index, choice["index"] = position, raw(position)
        delta = {} if read.delta is None else fields_decoder.decode(choice["delta"])
        message = choice.pop("message", NULL)
        if read.message is not None and (read.delta is None or read.delta.is_silent):
            said = fields_decoder.decode(message)
            is_new = index not in self._spoken
            delta |= {name: said[name] for name in said if is_new or name in _CALL_FIELDS}
        if calls is not None:
            delta = without(delta, _CALL_FIELDS) | ({"tool_calls": raw(calls)} if calls else {})
        shown = shown_message(
            delta,
            self._identity.maker,
            hides=self._hides_reasoning,
            tells_field=index not in self._thought,
        )
        if "reasoning" in shown:
            self._thought.add(index)
        choice["delta"] = raw(shown)
        called = index in self._called
        reason = normalize_finish_reason(read.finish_reason or None, called=called)
        choice["finish_reason"] = raw(reason)
        choice.setdefault("native_finish_reason", native)
        return choice


_REPEATED: Final = ChatDelta()
"""What a message says that only repeats the deltas before it."""
_MOST_LESSONS: Final = 2
_CALL_FIELDS: Final = frozenset({"tool_calls", "function_call"})
