"""The interfaces of a format's client side and provider side.

    client's body ── ClientFormat.parse_request ─▶ CanonicalRequest
        ── ProviderFormat.render_request ──▶ provider's body
    provider's body ── ProviderFormat.parse_response ─▶ CanonicalResponse
        ── ClientFormat.render_response ──▶ client's body
    provider's stream ── StreamDecoder.feed ─▶ CanonicalEvent
        ── StreamEncoder.write ──▶ client's stream

All implementations are pure: bytes and values in, bytes and values out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.events import CanonicalEvent
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class StreamDecoder(Protocol):
    """Decodes one stream of a provider's dialect."""

    @property
    def done(self) -> bool:
        """Whether the dialect's terminal event arrived; nothing follows it."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        ...

    def feed(self, data: bytes) -> Sequence[CanonicalEvent]:
        """Consume the data of one provider event; return the canonical events.

        Raises:
            MalformedResponse: The event is not of the dialect, or is out of order.
            ErrorEvent: The provider reported an error.
        """
        ...


class ProviderFormat(Protocol):
    """The provider side of a format."""

    @property
    def dialect(self) -> Dialect:
        """The dialect that it implements."""
        ...

    @property
    def supported_parameters(self) -> frozenset[str]:
        """The parameters that the dialect has, by the names that `given_parameters` returns."""
        ...

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return those of them that a provider rejects."""
        ...

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the provider's request body; parameters that the dialect lacks are left out.

        Raises:
            Invalid: The dialect cannot carry content that must not be dropped (a file, audio).
        """
        ...

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Parse a complete response.

        Raises:
            MalformedResponse: The body is not of the dialect.
            ErrorEvent: The body is the provider's error, sent with a success status.
        """
        ...

    def stream_decoder(self) -> StreamDecoder:
        """Return the decoder of one stream."""
        ...


class StreamEncoder(Protocol):
    """Encodes one stream in a client's format; its output is always a legal sequence."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the bytes for the client; may be empty.

        Raises:
            MalformedResponse: The event is not legal at this point of the stream.
        """
        ...

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: usage, and the terminal event."""
        ...

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error, as the format's terminal event."""
        ...


class ClientFormat(Protocol):
    """The client side of a format, for one request."""

    def parse_request(self) -> CanonicalRequest:
        """Return the request in canonical form.

        Raises:
            Invalid: A field is of the wrong type or missing; the message begins with its path.
        """
        ...

    def without_content(self, prompt: CanonicalRequest | None) -> ClientFormat:
        """Return a client format for the response alone, which holds none of the conversation.

        Args:
            prompt: What `parse` returned, without its turns; None where it was not called yet.
        """
        ...

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return the body of a complete response."""
        ...

    def stream_encoder(self, identity: ReplyIdentity) -> StreamEncoder:
        """Return the encoder of one stream."""
        ...
