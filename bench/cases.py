"""The cases to measure: a client's format, a provider's dialect, whole or streamed.

    client       provider
    chat         chat         whole, over TLS, streamed; beside nginx
    messages     messages     whole, streamed; beside chat on chat, as all below
    messages     chat         translated, as all below
    chat         messages
    responses    chat

The title and the name of a translated case read "client's on provider's".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench import nginx

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and the upstream's port that answers it."""

    title: str
    model: str = "bench/fixed"
    """The catalogue's name; its provider is one port and one dialect."""
    stream: bool = False
    format: str = "chat"
    """The client's format."""
    prefix: str | None = None
    """What nginx has before the path, for the same port; None where nginx is not measured."""
    is_translated: bool = False
    """Whether the provider speaks another dialect than the client."""


MESSAGES_MODEL: Final = "bench/fixed-messages"
"""The model of the provider that speaks messages."""

WHOLE: Final = Case("non-streamed", prefix="")
TLS: Final = Case("non-streamed, TLS upstream", "bench/fixed-tls", prefix=nginx.TLS)
STREAM: Final = Case("50-chunk stream", stream=True, prefix=nginx.UNBUFFERED)
SLOW: Final = Case("slow 50-chunk stream", "bench/fixed-slow", stream=True, prefix=nginx.SLOW)

CASES: Final[Mapping[str, Case]] = {
    "whole": WHOLE,
    "tls": TLS,
    "messages": Case("messages", MESSAGES_MODEL, format="messages"),
    "messages-on-chat": Case("messages on chat", format="messages", is_translated=True),
    "chat-on-messages": Case("chat on messages", MESSAGES_MODEL, is_translated=True),
    "responses-on-chat": Case("responses on chat", format="responses", is_translated=True),
    "stream": STREAM,
    "messages-stream": Case("messages, streamed", MESSAGES_MODEL, stream=True, format="messages"),
    "messages-on-chat-stream": Case(
        "messages on chat, streamed", stream=True, format="messages", is_translated=True
    ),
    "chat-on-messages-stream": Case(
        "chat on messages, streamed", MESSAGES_MODEL, stream=True, is_translated=True
    ),
    "responses-on-chat-stream": Case(
        "responses on chat, streamed", stream=True, format="responses", is_translated=True
    ),
}
"""The cases of a run in their order: similar ones side by side."""


def chat_of(case: Case) -> str:
    """Return the name of the chat case that another case is compared with."""
    return "stream" if case.stream else "whole"
