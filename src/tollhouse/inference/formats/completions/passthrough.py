"""Passes completions requests and responses through; only the gateway's own fields are changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse, without_content
from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.formats.chat_completions.usage import parse_usage, render_usage
from tollhouse.inference.formats.chat_completions.wire import DONE, normalize_finish_reason
from tollhouse.inference.formats.completions.stream_encoder import last_choices, render_stream_error
from tollhouse.inference.formats.fields import GATEWAY_FIELDS, Fields, fields_decoder
from tollhouse.inference.formats.raw_json import (
    NULL,
    encoder,
    join_lines,
    raw,
    replace_invalid_utf8,
)
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.inference.sse import event as sse_event
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.completions.request import CompletionsRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class _Choice(msgspec.Struct):
    text: str = ""
    index: int = 0
    finish_reason: str | None = None


_choices: Final = msgspec.json.Decoder(list[_Choice])
_id: Final = msgspec.json.Decoder(str | None)


class CompletionsPassthroughAdapter:
    """Implements `formats.adapter.FormatAdapter`."""

    dialect = Dialect.COMPLETIONS
    query = ""
    headers = ()

    def __init__(self, request: CompletionsRequest) -> None:
        self._request = request

    def without_content(self, *, parsed: bool = False) -> CompletionsPassthroughAdapter:
        """Return a copy without the conversation's content."""
        del parsed
        return CompletionsPassthroughAdapter(without_content(self._request))

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        return self._request.fields.keys() & endpoint.profile.refuses

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name."""
        left_out = GATEWAY_FIELDS | endpoint.profile.refuses
        given = self._request.fields.items()
        fields = {name: value for name, value in given if name not in left_out}
        fields["model"] = raw(endpoint.model)
        if self._request.stream and endpoint.profile.usage_in_streams:
            fields["stream_options"] = raw({"include_usage": True})
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> CompletionsResponse:
        """Parse a provider's complete response.

        Raises:
            MalformedResponse: The body is not a completion.
            ErrorEvent: The body is the provider's error, sent with a success status.
        """
        fields, choices, upstream_id = _read(body)
        if not choices:
            message = "the reply has no choices"
            raise MalformedResponse(message)
        output_size = sum(len(choice.text.encode()) for choice in choices)
        reported = parse_usage(fields.get("usage"))
        return CompletionsResponse(
            fields=fields,
            reported=reported,
            seen=reported or _estimate(self._request.size, output_size),
            upstream_id=upstream_id,
            native_finish_reason=choices[0].finish_reason,
        )

    def open_stream(self, identity: ReplyIdentity) -> CompletionsStream:
        """Return the adapter of one streamed response."""
        return CompletionsStream(identity, self._request)


@dataclass(slots=True)
class CompletionsResponse:
    """Implements `formats.adapter.AdaptedResponse`."""

    fields: Fields
    reported: Usage | None
    seen: Usage
    upstream_id: str | None
    native_finish_reason: str | None

    @property
    def finish_reason(self) -> str | None:
        """The normalized finish reason."""
        return normalize_finish_reason(self.native_finish_reason)

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        usage = render_usage(charge, is_byok=False)
        return encoder.encode({**self.fields, **_ours(identity), "usage": usage})


class CompletionsStream:
    """Implements `formats.adapter.AdaptedStream`."""

    def __init__(self, identity: ReplyIdentity, request: CompletionsRequest) -> None:
        self.done = False
        self.reported: Usage | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._identity = identity
        self._request = request
        self._seen_bytes = 0
        self._unfinished: set[int] = set()
        self._stream_end = StreamEnd("completions")

    @property
    def finish_reason(self) -> str | None:
        """The normalized finish reason."""
        return normalize_finish_reason(self.native_finish_reason)

    @property
    def complete(self) -> bool:
        """Whether every choice finished; after `[DONE]`, whether there was any output."""
        if self.native_finish_reason and not self._unfinished:
            return True
        return self.done and (self.native_finish_reason is not None or self._seen_bytes > 0)

    @property
    def seen(self) -> Usage:
        """The tokens seen so far, estimated from their bytes."""
        return _estimate(self._request.size, self._seen_bytes)

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        if self.done or not data:
            return b""
        if data == DONE:
            self.done = True
            return b""
        fields, choices, upstream_id = _read(join_lines(data))
        self.reported = parse_usage(fields.pop("usage", None)) or self.reported
        self.upstream_id = self.upstream_id or upstream_id
        for choice in choices:
            self._follow(choice)
        return sse_event(encoder.encode({**fields, **_ours(self._identity)})) if choices else b""

    def end(self, charge: Charge) -> bytes:
        """Return the usage chunk and `[DONE]`."""
        self._stream_end.mark_written()
        usage = render_usage(charge, is_byok=False)
        choices = last_choices(self._request.fields)
        last: dict[str, object] = {**_ours(self._identity), "choices": choices, "usage": usage}
        return sse_event(encoder.encode(last)) + sse_event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        self._stream_end.mark_written()
        return render_stream_error(error, self._identity)

    def _follow(self, choice: _Choice) -> None:
        self._seen_bytes += len(choice.text.encode())
        if not choice.finish_reason:
            self._unfinished.add(choice.index)
        else:
            self._unfinished.discard(choice.index)
            self.native_finish_reason = choice.finish_reason


def _read(data: bytes) -> tuple[Fields, Sequence[_Choice], str | None]:
    try:
        fields = fields_decoder.decode(replace_invalid_utf8(data))
        if fields.get("error", NULL) != NULL:
            raise parse_error_event(fields["error"])
        upstream_id = _id.decode(fields.get("id", NULL))
        return fields, _choices.decode(fields.get("choices", b"[]")), upstream_id
    except (msgspec.DecodeError, RecursionError):
        message = "the reply is no completion"
        raise MalformedResponse(message) from None


def _ours(identity: ReplyIdentity) -> dict[str, object]:
    return {
        "id": identity.id,
        "object": "text_completion",
        "created": identity.created,
        "model": identity.model,
        "provider": identity.provider,
    }


def _estimate(request_size: int, output_size: int) -> Usage:
    return Usage(
        input_tokens=estimate_tokens(request_size), output_tokens=estimate_tokens(output_size)
    )
