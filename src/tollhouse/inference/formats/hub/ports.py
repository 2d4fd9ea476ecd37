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
    from tollhouse.inference.formats.hub.events import Event
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Reply
    from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class Reader(Protocol):
    """One stream of a provider's dialect on its way in."""

    @property
    def done(self) -> bool:
        """Whether the dialect's own end came: nothing follows."""
        ...

    @property
    def complete(self) -> bool:
        """Whether a clean end of the body is an end of the reply, too."""
        ...

    def feed(self, data: bytes) -> Sequence[Event]:
        """Take the data of one of the provider's events; return what it says.

        Raises:
            Unreadable: It is none of the dialect, or out of order.
            ErrorEvent: The provider says that it failed.
        """
        ...


class Speaker(Protocol):
    """A provider's dialect."""

    @property
    def dialect(self) -> Dialect:
        """Which."""
        ...

    @property
    def says(self) -> frozenset[str]:
        """Which parameters of a prompt it can say, by the names of `prompt.given_parameters`."""
        ...

    def refused(self, profile: Profile) -> frozenset[str]:
        """Return those of them that a provider refuses all the same."""
        ...

    def ask(self, prompt: Prompt, endpoint: Endpoint) -> bytes:
        """Return the body of a request; what the dialect cannot say is left out.

        Raises:
            Invalid: Something that must not be left out (a file, a recording) cannot be said.
        """
        ...

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            Unreadable: It is none of the dialect.
            ErrorEvent: It is the provider's error, under a success status.
        """
        ...

    def reader(self) -> Reader:
        """Begin to read a stream."""
        ...


class Writer(Protocol):
    """One stream in a client's format on its way out. It cannot write an illegal sequence."""

    def write(self, event: Event) -> bytes:
        """Return what the client gets of an event; may be empty.

        Raises:
            Unreadable: The event has no place in a legal stream.
        """
        ...

    def end(self, charge: Charge) -> bytes:
        """Return the end of a stream that came to its end: usage, and the terminal event."""
        ...

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a stream that broke: the error, as the format's terminal event."""
        ...


class Listener(Protocol):
    """A client's format."""

    def parse(self) -> Prompt:
        """Return what the request asks.

        Raises:
            Invalid: A field is of the wrong type or missing; the message begins with its path.
        """
        ...

    def told(self, prompt: Prompt | None) -> Listener:
        """Return what writes replies as this does, and holds nothing of what is said.

        Args:
            prompt: What `parse` returned, without its turns; None where it was not called yet.
        """
        ...

    def render(self, reply: Reply, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return a whole reply's body."""
        ...

    def writer(self, identity: ReplyIdentity) -> Writer:
        """Begin to write a stream."""
        ...
