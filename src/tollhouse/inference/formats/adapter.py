"""The interface between the inference pipeline and the wire formats.

    adapter.render_request(endpoint)  -> the provider's request body
    adapter.parse_response(body)      -> AdaptedResponse    .render(identity, charge)
    adapter.open_stream(identity)     -> AdaptedStream      .feed(data) ... .end(charge) | .fail()

The pipeline depends on these protocols only; a request brings one adapter for each dialect.
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
    """A provider's response does not conform to its dialect."""


class ErrorEvent(Exception):
    """An error that the provider reported in a response body or in a stream."""

    def __init__(self, code: str | int | None, message: str | None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ResponseSummary(Protocol):
    """What is known of a response, complete or so far."""

    @property
    def reported(self) -> Usage | None:
        """The usage that the provider reported; None if it reported none."""
        ...

    @property
    def seen(self) -> Usage:
        """The tokens seen so far, estimated from their bytes."""
        ...

    @property
    def finish_reason(self) -> str | None:
        """The normalized finish reason; None until the response has finished."""
        ...

    @property
    def native_finish_reason(self) -> str | None:
        """The provider's own finish reason."""
        ...

    @property
    def upstream_id(self) -> str | None:
        """The provider's id of the response."""
        ...


class AdaptedResponse(ResponseSummary, Protocol):
    """A complete response, to be rendered in the client's format."""

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body."""
        ...


class AdaptedStream(ResponseSummary, Protocol):
    """A streamed response; its output is a legal stream whatever the provider sends."""

    @property
    def done(self) -> bool:
        """Whether the provider's terminal event arrived."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        ...

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client.

        Raises:
            MalformedResponse: It is none of its dialect.
            ErrorEvent: The provider reported an error.
        """
        ...

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream."""
        ...

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        ...


class FormatAdapter(Protocol):
    """Adapts one client request to one provider dialect, and the response back."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the provider's request and response."""
        ...

    @property
    def query(self) -> str:
        """The query string that is forwarded to the provider; may be empty."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """The client's headers that are forwarded to the provider, names in lower case."""
        ...

    def without_content(self, *, parsed: bool = False) -> FormatAdapter:
        """Return an adapter for the response alone, which holds none of the conversation.

        Args:
            parsed: Whether it must also support `unsupported_parameters`.
        """
        ...

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        ...

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the request body for the endpoint's provider.

        Raises:
            Invalid: The request cannot be expressed in the dialect.
        """
        ...

    def parse_response(self, body: bytes) -> AdaptedResponse:
        """Parse a provider's complete response.

        Raises:
            MalformedResponse: The body is not a response of the dialect.
            ErrorEvent: The body is the provider's error, sent with a success status.
        """
        ...

    def open_stream(self, identity: ReplyIdentity) -> AdaptedStream:
        """Return the adapter of one streamed response."""
        ...


class ClientRequest(Protocol):
    """A parsed request in a client's format."""

    @property
    def api_type(self) -> str:
        """The name of the API in the generation's record."""
        ...

    @property
    def model(self) -> str:
        """The requested model."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the response is to be streamed."""
        ...

    @property
    def fields(self) -> Fields:
        """The body's top-level fields as received."""
        ...

    @property
    def content_field(self) -> str:
        """The name of the field that holds the conversation."""
        ...

    @property
    def body(self) -> bytes:
        """The body as received."""
        ...

    @property
    def size(self) -> int:
        """Bytes of its body."""
        ...

    @property
    def output_limits(self) -> Sequence[str]:
        """The fields that limit the output of each choice; empty if there is no output."""
        ...

    @property
    def streamed_errors(self) -> Collection[str]:
        """Codes of errors that a stream sends as an event, even before any output."""
        ...

    @property
    def answer_counts(self) -> Sequence[str]:
        """The fields that say how many choices are generated."""
        ...


def without_content(request: R) -> R:
    """Return a request without its conversation: what the response is rendered from."""
    fields = {
        name: value for name, value in request.fields.items() if name != request.content_field
    }
    stripped: R = replace(cast("Any", request), fields=fields, body=b"")  # each is a dataclass
    return stripped
