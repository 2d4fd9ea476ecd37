"""Passes a chat stream through: provider events in, a legal stream out. Pure.

    stream = ChatStream(identity, request)
    stream.feed(data)    -> bytes for the client (may be empty)
    stream.end(charge)   -> the usage chunk and [DONE]
    stream.fail(error)   -> the error chunk and [DONE]

Whatever the provider sends, the client's stream is `chunk* (usage | error) [DONE]`: the provider's
usage is held back to the end and priced, its `[DONE]` is not forwarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.chat_completions.errors import (
    error_chunk,
    parse_error_event,
    render_stream_error,
)
from tollhouse.inference.formats.chat_completions.passthrough_bodies import without_reasoning
from tollhouse.inference.formats.chat_completions.reasoning import fill_reasoning_fields
from tollhouse.inference.formats.chat_completions.usage import (
    asks_for_usage,
    output_bytes,
    parse_usage,
    render_usage,
)
from tollhouse.inference.formats.chat_completions.wire import (
    DONE,
    EMPTY_CHOICE,
    choices_decoder,
    chunk_choices_decoder,
    normalize_finish_reason,
)
from tollhouse.inference.formats.fields import Fields, fields_decoder
from tollhouse.inference.formats.raw_json import (
    NULL,
    encoder,
    join_lines,
    raw,
    replace_invalid_utf8,
)
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.inference.sse import event

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.formats.chat_completions.wire import ChunkChoice
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_NO_CHOICES = msgspec.Raw(b"[]")
_EMPTY_CHOICES = raw([EMPTY_CHOICE])
_OBJECT = msgspec.Raw(b'"chat.completion.chunk"')
_text = msgspec.json.Decoder(str | None)


class ChatStream:
    """The state of one stream."""

    def __init__(self, identity: ReplyIdentity, request: ChatRequest) -> None:
        self.done = False
        """The provider's terminal event arrived."""
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._identity = identity
        self._request = request
        self._hides_reasoning = not request.shows_reasoning
        self._seen_bytes = 0
        self._unfinished: set[int] = set()
        self._stream_end = StreamEnd("chat")
        self._ours: Fields = {
            "id": raw(identity.id),
            "object": _OBJECT,
            "created": raw(identity.created),
            "model": raw(identity.model),
            "provider": raw(identity.provider),
        }

    @property
    def complete(self) -> bool:
        """Whether every choice finished; after `[DONE]`, whether there was any output."""
        if self.finish_reason is not None and not self._unfinished:
            return True
        return self.done and (self.finish_reason is not None or self._seen_bytes > 0)

    @property
    def seen(self) -> Usage:
        """The tokens seen so far, estimated from their bytes."""
        return Usage(
            input_tokens=estimate_tokens(self._request.size),
            output_tokens=estimate_tokens(self._seen_bytes),
        )

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client.

        Raises:
            MalformedResponse: The data is neither a chunk nor `[DONE]`.
            ErrorEvent: The provider reported an error.
        """
        if self.done or not data:
            return b""
        if data == DONE:
            self.done = True
            return b""
        try:
            return self._chunk(fields_decoder.decode(replace_invalid_utf8(join_lines(data))))
        except (msgspec.DecodeError, RecursionError):
            message = "an event of the stream is not a chat chunk"
            raise MalformedResponse(message) from None

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: usage, then `[DONE]`."""
        self._stream_end.mark_written()
        fields: dict[str, object] = {
            **self._ours,
            "choices": _NO_CHOICES if asks_for_usage(self._request.fields) else _EMPTY_CHOICES,
            "usage": render_usage(charge, is_byok=False),
        }
        return event(encoder.encode(fields)) + event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        self._stream_end.mark_written()
        return render_stream_error(error, error_chunk(self._identity))

    def _chunk(self, fields: Fields) -> bytes:
        if fields.get("error", NULL) != NULL:
            raise parse_error_event(fields["error"])
        if fields.get("system_fingerprint") == NULL:
            # Published clients accept null in a complete response, but only a string in a chunk.
            del fields["system_fingerprint"]
        usage = parse_usage(fields.pop("usage", None))
        if usage is not None:
            self.reported = usage
        if self.upstream_id is None:
            self.upstream_id = _text.decode(fields.get("id", NULL))
        given = fields.get("choices", _NO_CHOICES)
        choices = chunk_choices_decoder.decode(given)
        if not choices:
            return b""
        for position, choice in enumerate(choices):
            self._follow(choice, position)
        fields |= self._ours
        if self._hides_reasoning or not all(map(_needs_no_change, choices)):
            decoded = enumerate(choices_decoder.decode(given))
            hides = self._hides_reasoning
            fields["choices"] = raw(
                [_patched(choice, place, hides_reasoning=hides) for place, choice in decoded]
            )
        return event(encoder.encode(fields))

    def _follow(self, choice: ChunkChoice, position: int) -> None:
        index = position if choice.index is None else choice.index
        if choice.delta is not None:
            self._seen_bytes += output_bytes(choice.delta)
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self._unfinished.discard(index)
            self.native_finish_reason = choice.finish_reason
            self.finish_reason = normalize_finish_reason(choice.finish_reason)
        else:
            self._unfinished.add(index)


def _needs_no_change(choice: ChunkChoice) -> bool:
    """Return whether a choice needs no change: it has all required fields and is not the last."""
    return (
        choice.finish_reason is None
        and choice.index is not None
        and choice.delta is not None
        and not choice.delta.lacks_reasoning
    )


def _patched(choice: Fields, position: int, *, hides_reasoning: bool) -> Fields:
    native = choice.get("finish_reason", NULL)
    if choice.get("index", NULL) == NULL:
        choice["index"] = raw(position)
    given = choice.get("delta", NULL)
    delta = {} if given == NULL else fields_decoder.decode(given)
    choice["delta"] = raw((without_reasoning if hides_reasoning else fill_reasoning_fields)(delta))
    choice["finish_reason"] = raw(normalize_finish_reason(_text.decode(native)))
    choice.setdefault("native_finish_reason", native)
    return choice
