"""What each format brings to a translation: one side for clients, one for providers.

    client's body ── Listener.parse ──▶ Prompt ── Speaker.ask ────▶ provider's body
    client's body ◀─ Listener.render ── Reply ◀── Speaker.read ──── provider's body
    client's stream ◀─ Writer.write ─── Event ◀── Reader.feed ───── provider's stream

All of it is pure: bytes and values in, bytes and values out.
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
    """One stream of a provider's dialect on its way in."""

    @property
    def done(self) -> bool:
        """Whether the dialect's own end came: nothing follows."""
        ...

    @property
    def complete(self) -> bool:
        """Whether a clean end of the body is an end of the reply, too."""
        ...

    def feed(self, data: bytes) -> Sequence[CanonicalEvent]:
        """Take the data of one of the provider's events; return what it says.

        Raises:
            MalformedResponse: It is none of the dialect, or out of order.
            ErrorEvent: The provider says that it failed.
        """
        ...


class ProviderFormat(Protocol):
    """A provider's dialect."""

    @property
    def dialect(self) -> Dialect:
        """Which."""
        ...

    @property
    def supported_parameters(self) -> frozenset[str]:
        """Which parameters of a prompt it can say, by the names of `prompt.given_parameters`."""
        ...

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return those of them that a provider refuses all the same."""
        ...

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the body of a request; what the dialect cannot say is left out.

        Raises:
            Invalid: Something that must not be left out (a file, a recording) cannot be said.
        """
        ...

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Read a whole reply.

        Raises:
            MalformedResponse: It is none of the dialect.
            ErrorEvent: It is the provider's error, under a success status.
        """
        ...

    def stream_decoder(self) -> StreamDecoder:
        """Begin to read a stream."""
        ...


class StreamEncoder(Protocol):
    """One stream in a client's format on its way out. It cannot write an illegal sequence."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return what the client gets of an event; may be empty.

        Raises:
            MalformedResponse: The event has no place in a legal stream.
        """
        ...

    def end(self, charge: Charge) -> bytes:
        """Return the end of a stream that came to its end: usage, and the terminal event."""
        ...

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a stream that broke: the error, as the format's terminal event."""
        ...


class ClientFormat(Protocol):
    """A client's format."""

    def parse_request(self) -> CanonicalRequest:
        """Return what the request asks.

        Raises:
            Invalid: A field is of the wrong type or missing; the message begins with its path.
        """
        ...

    def without_content(self, prompt: CanonicalRequest | None) -> ClientFormat:
        """Return what writes replies as this does, and holds nothing of what is said.

        Args:
            prompt: What `parse` returned, without its turns; None where it was not called yet.
        """
        ...

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return a whole reply's body."""
        ...

    def stream_encoder(self, identity: ReplyIdentity) -> StreamEncoder:
        """Begin to write a stream."""
        ...
