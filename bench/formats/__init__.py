"""The wire formats of the measurements: what clients send and check, what providers answer.

load ── FORMATS[format].request ──> gateway ──> upstream, which answers by the path: ANSWERS
load <─ FORMATS[format].check_* ─── gateway <──
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from bench.formats import chat, messages, responses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Request(Protocol):
    """Makes a request's body."""

    def __call__(self, model: str, *, stream: bool) -> bytes:
        """Return a request of 2 KB, as the client sends it."""
        ...


class Check(Protocol):
    """Accepts a reply that is whole."""

    def __call__(self, body: bytes, *, priced: bool) -> None:
        """Accept a reply, given as all its bytes.

        Args:
            body: The reply.
            priced: Whether it must say what it cost, as the gateway's does.

        Raises:
            Truncated: It is another one than the upstream's, or not all of it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """What a client of the gateway speaks."""

    path: str
    request: Request
    check_whole: Check
    check_stream: Check


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider says in its dialect."""

    whole: Callable[[], bytes]
    """About 1 KB."""
    pieces: Callable[[], tuple[bytes, ...]]
    """A stream as it is written, one element for each write."""


FORMATS: Final[Mapping[str, Format]] = {
    "chat": Format(chat.PATH, chat.request_body, chat.check_whole, chat.check_stream),
    "messages": Format(
        messages.PATH, messages.request_body, messages.check_whole, messages.check_stream
    ),
    "responses": Format(
        responses.PATH, responses.request_body, responses.check_whole, responses.check_stream
    ),
}
ANSWERS: Final[Mapping[str, Answer]] = {
    chat.PATH: Answer(chat.reply_body, chat.stream_pieces),
    messages.PATH: Answer(messages.reply_body, messages.stream_pieces),
}
"""By the path of the request."""
