"""The interface between the inference pipeline and the wire formats. Pure: bytes in, bytes out.

    adapter.render_request(body, endpoint)  -> the provider's request body, from the client's
    adapter.parse_response(body)      -> AdaptedResponse    .render(identity, charge)
    adapter.open_stream(identity)     -> AdaptedStream      .feed(data) ... .end(charge) | .fail()

The pipeline depends on these classes only; a request brings one adapter for each dialect. None of
them holds the conversation, which stays in the client's body.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.usage import Counts, later, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    estimate_tokens,
    estimate_usage,
)
from tollhouse.kernel.errors import Bug, Invalid, TollhouseError

if TYPE_CHECKING:
    from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity

R = TypeVar("R", bound="ClientRequest")


class MalformedResponse(ValueError):
    """A provider's response does not conform to its dialect."""


class ErrorEvent(Exception):
    """An error that the provider reported in a response body or in a stream."""

    def __init__(self, code: str | int | None, message: str | None, data: bytes = b"") -> None:
        code = code[:_LONGEST_CODE] if isinstance(code, str) else code
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.data = data[:_LONGEST_DATA]
        """As it came: it may hint when to try again."""


_LONGEST_CODE: Final = 100
_LONGEST_DATA: Final = 16 * 1024


@dataclass(slots=True, repr=False)
class AdaptedResponse(ABC):
    """A complete response, to be rendered in the client's format."""

    reported: Usage | None
    """The usage that the provider reported; None if it reported none."""
    seen: Usage
    """The reported usage, or else the tokens estimated from their bytes."""
    finish_reason: str | None
    """The normalized finish reason; a response without one has failed."""
    native_finish_reason: str | None
    upstream_id: str | None
    """The provider's id of the response."""

    @abstractmethod
    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""


def counted(
    reported: Usage | None, request_size: int, output_size: Callable[[], int]
) -> tuple[Usage | None, Usage]:
    """Return what a complete response used as reported, and as far as it can be known.

    A report of no output beside a text is none.
    """
    if reported is not None and (reported.output_tokens or not output_size()):
        return reported, reported
    return None, estimate_usage(request_size, output_size())


class StreamEnding(ABC):
    """A stream of the client's, which ends once."""

    _ended = False

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: usage, and the terminal event."""
        self._mark_ended()
        return self._end(charge)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error, as the format's terminal event."""
        self._mark_ended()
        return self._fail(error)

    @abstractmethod
    def _end(self, charge: Charge) -> bytes: ...

    @abstractmethod
    def _fail(self, error: TollhouseError) -> bytes: ...

    def _mark_ended(self) -> None:
        if self._ended:
            raise Bug(f"a {type(self).__name__} was ended twice")
        self._ended = True


_MOST_BYTES_PER_TOKEN: Final = 8
"""Twice the usual: fewer tokens than that cannot be all of a text."""


class AdaptedStream(StreamEnding):
    """A streamed response; its output is a legal stream whatever the provider sends.

    What is known of it so far has the same names as in `AdaptedResponse`.
    """

    def __init__(self, request_size: int) -> None:
        self.done = False
        """Whether the provider's terminal event arrived."""
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._input = Usage(input_tokens=estimate_tokens(request_size))
        self._seen_bytes: int = 0
        """Bytes of output."""

        self._counts: Counts = {}
        self._first: Usage | None = None
        """What was reported at the start."""

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self.done

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come yet that a client would show, and no end but a failure."""
        return not self._seen_bytes and self.finish_reason in {None, "error"}

    @property
    def seen(self) -> Usage:
        """The tokens seen so far; the output is estimated from its bytes."""
        return replace(self._input, output_tokens=estimate_tokens(self._seen_bytes))

    def _report(self, counts: Counts) -> None:
        """Note what the provider said of the usage so far."""
        if counts:
            self._counts = later(self._counts, counts)
            self.reported = usage_of(self._counts)

    def _begin(self, usage: Usage | None) -> None:
        """Note what the provider reported at the start."""
        if usage is not None:
            self._first, self._input = usage, replace(usage, output_tokens=0)

    def _settle(self) -> None:
        """Take what was reported at the start, where nothing followed and it covers the output."""
        if self.reported is None and self._first is not None:
            made = self._first.output_tokens
            covers = _MOST_BYTES_PER_TOKEN * made >= self._seen_bytes
            self.reported = self._first if covers else None

    @abstractmethod
    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client.

        Raises `MalformedResponse` if it is not of the dialect or out of order, and `ErrorEvent`.
        """


class FormatAdapter(ABC):
    """Adapts one client request to one provider dialect, and the response back."""

    dialect: Dialect
    """The dialect of the provider's request and response."""
    query: str = ""
    """The query string that is forwarded to the provider."""
    headers: Sequence[tuple[str, str]] = ()
    """The client's headers that are forwarded to the provider, names in lower case."""

    @abstractmethod
    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive.

        Raises `Invalid` if the request cannot be translated.
        """

    @abstractmethod
    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body for the client's.

        Raises `Invalid` if the dialect cannot express it.
        """

    @abstractmethod
    def parse_response(self, body: bytes) -> AdaptedResponse:
        """Parse a complete response; raises `MalformedResponse`, or `ErrorEvent` for an error."""

    @abstractmethod
    def open_stream(self, identity: ReplyIdentity) -> AdaptedStream:
        """Return the adapter of one streamed response."""


class ClientRequest(Struct, frozen=True):
    """What a request in a client's format says, apart from its conversation, so it is small."""

    api_type: ClassVar[str] = "completions"
    """The name of the API in the generation's record."""
    content_field: ClassVar[str]
    """The name of the field that holds the conversation."""
    output_limits: ClassVar[Sequence[str]] = ()
    """The fields that limit the output of each choice; empty if there is no output."""
    answer_counts: ClassVar[Sequence[str]] = ()
    """The fields that say how many choices are generated."""
    streamed_errors: ClassVar[Collection[str]] = ()
    """Codes of errors that a stream sends as an event, even before any output."""

    model: str
    stream: bool
    fields: Fields
    """The body's top-level fields as received; that of the conversation is empty."""
    size: int
    """Bytes of the body as received."""
    content_size: int
    """Bytes of the conversation."""

    @classmethod
    def of(cls, body: bytes, fields: Fields, model: str, *own: Any, stream: bool) -> Self:  # noqa: ANN401 - own fields
        """Return what a body says, whose fields these are; they lose the conversation.

        `own` is what the format's class adds, in that order.
        """
        content_size = len(fields[cls.content_field])
        fields[cls.content_field] = _LEFT_OUT
        return cls(model, stream, fields, len(body), content_size, *own)

    def passed_on(
        self, body: bytes, model: str, left_out: frozenset[str], added: Mapping[str, Raw]
    ) -> bytes | None:
        """Return the body with another model's name, and with further fields at its end.

        None where it has to be decoded: fields are to be left out, or stand there with other
        values, or it is not written as `encoder` writes.
        """
        fields = self.fields
        if not left_out.isdisjoint(fields) or (at := self._place_of_model()) is None:
            return None
        end = b"}"
        if added:
            if fields.keys().isdisjoint(added):
                end = b"," + encoder.encode(added)[1:]
            elif any(fields.get(name) != value for name, value in added.items()):
                return None
        behind = at + len(fields["model"])
        return b"".join((body[:at], encoder.encode(model), body[behind:-1], end))

    def _place_of_model(self) -> int | None:
        """Return where its value begins in the body; None if that has more than each field once.

        A field takes its name, its value and four signs: `"":,`. What is more are spaces, escapes
        in names, or fields that are there twice.
        """
        fields = self.fields
        names, values = sum(map(len, fields)), sum(map(len, fields.values()))
        if self.size != names + values + self.content_size + 4 * len(fields) + 1:
            return None
        at = 1
        for name, value in fields.items():
            if name == "model":
                break
            at += len(name) + len(value) + 4
            if name == self.content_field:
                at += self.content_size
        return at + len('"model":')

    def whole(self, body: bytes) -> Fields:
        """Return all fields, with the conversation in its place, of the body that it is in.

        Raises `Invalid` where it is nested more deeply than can be read here.
        """
        field = self.content_field
        try:
            content = _content_decoder(field).decode(body)
        except RecursionError:
            raise Invalid(f"{field}: it is nested too deeply.") from None
        return {**self.fields, field: getattr(content, field)}

    def __repr__(self) -> str:
        """Show nothing of what it says."""
        return f"<{type(self).__name__} model={self.model!r} size={self.size}>"


_LEFT_OUT: Final = Raw(b"")


@lru_cache
def _content_decoder(field: str) -> msgspec.json.Decoder[Any]:
    """Return what reads one field and passes over all others, in a third of the time."""
    return msgspec.json.Decoder(msgspec.defstruct("Content", [(field, Raw, NULL)]))


class PassthroughAdapter(FormatAdapter, Generic[R]):
    """The base of adapters to providers of the client's own format."""

    def __init__(self, request: R) -> None:
        self._request = request

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        return self._request.fields.keys() & endpoint.profile.refuses
