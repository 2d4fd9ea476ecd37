"""Interns in chat services: what a service's own file does, and what all of them share.

    the service ──> its file ──> Conversations ──> the intern's daemon
        ^               │             │
        └── Thread <────┴─────────────┘

A service's file connects to it, decides who may talk, and turns what people send into prompts and
answers; a thread there is a session of the intern. `conversations` knows no service. A second
service is a second file beside `slack`, and its name in `supervisor.SERVICES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.interns.chat.events import QuestionEvent
    from tollhouse.kernel.secret import Secret


class ChannelFailed(Exception):
    """The service refused, or could not be reached; the text is for the intern's owner."""


class Thread(Protocol):
    """One conversation in a service; none of this fails where the service does."""

    @property
    def session(self) -> str:
        """The session of the intern that this is."""
        ...

    def write(self, text: str) -> None:
        """Add to the reply, which people see growing."""
        ...

    def note(self, title: str) -> None:
        """Say what is done just now, until the reply goes on."""
        ...

    async def finish(self) -> None:
        """Let the reply be whole; what follows is another one."""
        ...

    async def say(self, text: str) -> None:
        """Say something of our own."""
        ...

    async def ask(self, question: QuestionEvent) -> None:
        """Ask people what the intern asks."""
        ...

    async def offer_wake(self, text: str) -> None:
        """Say that the intern does not run, and offer to wake it."""
        ...


@dataclass(frozen=True, slots=True)
class ChannelFile:
    """A file that somebody sends with a prompt."""

    id: str
    """What no other file of the service has."""
    name: str
    size: int
    read: Callable[[], Awaitable[bytes]] = field(repr=False)
    """Fetches it; raises `ChannelFailed`."""


@dataclass(frozen=True, slots=True)
class ChannelPrompt:
    """What somebody wants to have done."""

    text: str = field(repr=False)
    files: Sequence[ChannelFile] = ()


@dataclass(frozen=True, slots=True)
class HttpEvent:
    """A request that a service has sent to us."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    """By their names in lower case."""


class Channel(Protocol):
    """An intern's connection to a service."""

    async def run(self) -> None:
        """Serve until it is cancelled, whatever becomes of the connection."""
        ...

    async def receive(self, event: HttpEvent) -> bytes:
        """Take an event that came over HTTP, and return what to answer.

        Raises `Unauthenticated` where the service has not signed it.
        """
        ...


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    """What a service knows an intern by; which of them there are is the service's own affair."""

    values: Mapping[str, Secret]

    def get(self, name: str) -> Secret | None:
        """Return one of them."""
        return self.values.get(name)
