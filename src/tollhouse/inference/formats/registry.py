"""Every format that clients speak: how its requests are read, and how its errors look.

    path -> Format.read(arrived)   -> the request, and the ways in which it can be asked, best first
            Format.refuse(error)   -> the body of an error before the first byte

Best is the client's own format, passed through; then chat, which says the most of what the others
can say; then whatever else a provider speaks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.chat_completions.listener import ChatListener
from tollhouse.inference.formats.chat_completions.parse import parse_request as parse_chat
from tollhouse.inference.formats.chat_completions.relay import ChatRelay
from tollhouse.inference.formats.chat_completions.speaker import ChatSpeaker
from tollhouse.inference.formats.completions.listener import CompletionsListener
from tollhouse.inference.formats.completions.relay import CompletionsRelay
from tollhouse.inference.formats.completions.request import parse_request as parse_completions
from tollhouse.inference.formats.embeddings.relay import EmbeddingsRelay
from tollhouse.inference.formats.embeddings.request import parse_request as parse_embeddings
from tollhouse.inference.formats.hub.relay import Translation
from tollhouse.inference.formats.messages.errors import envelope as messages_envelope
from tollhouse.inference.formats.messages.listener import MessagesListener
from tollhouse.inference.formats.messages.relay import MessagesRelay
from tollhouse.inference.formats.messages.request import parse_request as parse_messages
from tollhouse.inference.formats.messages.speaker import MessagesSpeaker
from tollhouse.inference.formats.responses.listener import ResponsesListener
from tollhouse.inference.formats.responses.relay import ResponsesRelay
from tollhouse.inference.formats.responses.request import parse_request as parse_responses
from tollhouse.inference.formats.responses.speaker import ResponsesSpeaker
from tollhouse.kernel.envelope import envelope
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tollhouse.inference.formats.base import ClientRequest, Relay
    from tollhouse.kernel.errors import TollhouseError

_CHAT: Final = ChatSpeaker()
_RESPONSES: Final = ResponsesSpeaker()
_MESSAGES: Final = MessagesSpeaker()
_VISIBLE: Final = re.compile(rb"[!-~]*")
_PRINTABLE: Final = re.compile(rb"[\t -~]*")
_ANTHROPIC_HEADERS: Final = ("anthropic-version", "anthropic-beta")
READ_HEADERS: Final = tuple(name.encode() for name in _ANTHROPIC_HEADERS)
"""All that a format reads of a request's head."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request as it came over HTTP."""

    body: bytes = field(repr=False)
    headers: Mapping[bytes, bytes] = field(repr=False)
    """Names in lower case."""
    query: bytes = field(repr=False)
    """The part of the URL behind the `?`."""


Asked = tuple["ClientRequest", tuple["Relay", ...]]
"""A request, and the ways in which it can be asked, best first: each dialect once."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format that clients speak."""

    read: Callable[[Arrived], Asked]
    """Raises `Invalid` for a body that is not of the format."""
    refuse: Callable[[TollhouseError, str | None], Mapping[str, object]]
    """From an error and the generation's id, if there is one, to the body of the answer."""
    anthropic: bool = False
    """Whether it is Anthropic's, whose `metadata` is not ours."""


def _read_chat(arrived: Arrived) -> Asked:
    request = parse_chat(arrived.body)
    listener = ChatListener(request)
    return request, (
        ChatRelay(request),
        Translation(request, listener, _RESPONSES),
        Translation(request, listener, _MESSAGES),
    )


def _read_responses(arrived: Arrived) -> Asked:
    request = parse_responses(arrived.body)
    listener = ResponsesListener(request)
    return request, (
        ResponsesRelay(request),
        Translation(request, listener, _CHAT),
        Translation(request, listener, _MESSAGES),
    )


def _read_messages(arrived: Arrived) -> Asked:
    request = parse_messages(arrived.body)
    listener = MessagesListener(request)
    return request, (
        MessagesRelay(request, passed_query(arrived), passed_headers(arrived)),
        Translation(request, listener, _CHAT),
        Translation(request, listener, _RESPONSES),
    )


def passed_query(arrived: Arrived) -> str:
    """Return the part of the URL behind the `?` that a provider of the same format gets."""
    if not _VISIBLE.fullmatch(arrived.query):
        message = "The query of the URL must be plain ASCII."
        raise Invalid(message)
    return arrived.query.decode("ascii")


def passed_headers(arrived: Arrived) -> tuple[tuple[str, str], ...]:
    """Return the headers that a provider of Anthropic's format gets."""
    given = ((name, arrived.headers.get(name.encode())) for name in _ANTHROPIC_HEADERS)
    passed = [(name, value) for name, value in given if value is not None]
    for name, value in passed:
        if not _PRINTABLE.fullmatch(value):
            raise Invalid(f"{name}: must be plain ASCII.")
    return tuple((name, value.decode("ascii")) for name, value in passed)


def _read_completions(arrived: Arrived) -> Asked:
    request = parse_completions(arrived.body)
    listener = CompletionsListener(request)
    return request, (
        CompletionsRelay(request),
        Translation(request, listener, _CHAT),
        Translation(request, listener, _RESPONSES),
        Translation(request, listener, _MESSAGES),
    )


def _read_embeddings(arrived: Arrived) -> Asked:
    request = parse_embeddings(arrived.body)
    return request, (EmbeddingsRelay(request),)


def _common_envelope(error: TollhouseError, request_id: str | None) -> Mapping[str, object]:
    del request_id
    return envelope(error)


FORMATS: Final[Mapping[str, Format]] = {
    "/chat/completions": Format(_read_chat, _common_envelope),
    "/responses": Format(_read_responses, _common_envelope),
    "/messages": Format(_read_messages, messages_envelope, anthropic=True),
    "/completions": Format(_read_completions, _common_envelope),
    "/embeddings": Format(_read_embeddings, _common_envelope),
}
"""Path to format."""
