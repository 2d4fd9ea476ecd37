"""What stands between a client's format and a provider's dialect, for one request.

    relay.ask(endpoint)       -> the provider's body
    relay.whole(body)         -> a whole reply, read    .render(identity, charge) -> the client's
    relay.stream(identity)    -> a stream on its way    .feed(event) ... .end(charge) | .fail(error)

The pipeline knows these and no format: a call brings the relays that its request has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.types import Charge, Usage
    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

R = TypeVar("R", bound="ClientRequest")


class MalformedResponse(ValueError):
    """A provider's reply is not what its dialect promises."""


class ErrorEvent(Exception):
    """A provider's own error, in the body of a reply or in the middle of its stream."""

    def __init__(self, code: str | int | None, message: str | None) -> None:
        """Take the provider's code and text, where it gave them."""
        super().__init__(code, message)
        self.code = code
        self.message = message


class ResponseSummary(Protocol):
    """What is known of a reply, whole or as far as it came."""

    @property
    def reported(self) -> Usage | None:
        """The usage that the provider reported; None where none came."""
        ...

    @property
    def seen(self) -> Usage:
        """The tokens that passed by, estimated from their bytes."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """How it ended, in the wire's five words; None while it has not."""
        ...

    @property
    def native_finish_reason(self) -> str | None:
        """The same in the provider's word."""
        ...

    @property
    def upstream_id(self) -> str | None:
        """The provider's own id of it."""
        ...


class AdaptedResponse(ResponseSummary, Protocol):
    """A whole reply."""

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""
        ...


class AdaptedStream(ResponseSummary, Protocol):
    """A stream on its way through; whatever the provider sends, the client's is legal."""

    @property
    def done(self) -> bool:
        """Whether the provider's own end event came."""
        ...

    @property
    def complete(self) -> bool:
        """Whether a clean end of the body is an end of the reply, too."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Take the data of one of the provider's events; return what the client gets of it.

        Raises:
            MalformedResponse: It is none of its dialect.
            ErrorEvent: The provider says that it failed.
        """
        ...

    def end(self, charge: Charge) -> bytes:
        """Return the end of a stream that came to its end."""
        ...

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a stream that broke."""
        ...


class FormatAdapter(Protocol):
    """One request in one dialect."""

    @property
    def dialect(self) -> Dialect:
        """What is spoken with the provider."""
        ...

    @property
    def query(self) -> str:
        """The part of the URL behind the `?` that the provider gets; may be empty."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """The client's headers that the provider gets, in lower case."""
        ...

    def without_content(self, *, parsed: bool = False) -> FormatAdapter:
        """Return what reads and writes a reply as this does, and holds nothing of what is said.

        Args:
            parsed: Whether it has to be able to say, besides, what would be `lost`.
        """
        ...

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        ...

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the body for an endpoint's provider.

        Raises:
            Invalid: The request cannot be put into the dialect.
        """
        ...

    def parse_response(self, body: bytes) -> AdaptedResponse:
        """Read a provider's whole reply.

        Raises:
            MalformedResponse: It is none.
            ErrorEvent: It is the provider's error, under a success status.
        """
        ...

    def open_stream(self, identity: ReplyIdentity) -> AdaptedStream:
        """Begin to relay a stream."""
        ...


class ClientRequest(Protocol):
    """A parsed request in a client's format."""

    @property
    def api_type(self) -> str:
        """What its generation calls the format."""
        ...

    @property
    def model(self) -> str:
        """The model that is asked for."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the reply is to be streamed."""
        ...

    @property
    def fields(self) -> Fields:
        """Its top-level fields as they came."""
        ...

    @property
    def content_field(self) -> str:
        """The field that holds what is said."""
        ...

    @property
    def body(self) -> bytes:
        """Its body as it came."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its body."""
        ...

    @property
    def output_limits(self) -> Sequence[str]:
        """The fields that limit how much is written for each answer; none where nothing is."""
        ...

    @property
    def streamed_errors(self) -> Collection[str]:
        """The codes of errors that a stream says, not a status, even where nothing came before."""
        ...

    @property
    def answer_counts(self) -> Sequence[str]:
        """The fields that say how many answers are written."""
        ...


def without_content(request: R) -> R:
    """Return a request without what is said in it: what its reply is made from."""
    fields = {
        name: value for name, value in request.fields.items() if name != request.content_field
    }
    stripped: R = replace(cast("Any", request), fields=fields, body=b"")  # each is a dataclass
    return stripped
