"""The formats of the inference API: request parsing and error rendering, by path.

    path -> ApiFormat.parse(raw_request)  -> the request and its adapters, in order of preference
            ApiFormat.render_error(error) -> the body of an error before the first byte

The client's own format, passed through, comes first; then chat completions, which can express the
most of the others; then the remaining dialects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.translation import TranslatingAdapter
from tollhouse.inference.formats.chat_completions.client_format import ChatClientFormat
from tollhouse.inference.formats.chat_completions.passthrough import ChatPassthroughAdapter
from tollhouse.inference.formats.chat_completions.provider_format import ChatProviderFormat
from tollhouse.inference.formats.chat_completions.request_parser import parse_request as parse_chat
from tollhouse.inference.formats.completions.client_format import CompletionsClientFormat
from tollhouse.inference.formats.completions.passthrough import CompletionsPassthroughAdapter
from tollhouse.inference.formats.completions.request import parse_request as parse_completions
from tollhouse.inference.formats.embeddings.passthrough import EmbeddingsPassthroughAdapter
from tollhouse.inference.formats.embeddings.request import parse_request as parse_embeddings
from tollhouse.inference.formats.messages.client_format import MessagesClientFormat
from tollhouse.inference.formats.messages.errors import envelope as messages_envelope
from tollhouse.inference.formats.messages.passthrough import MessagesPassthroughAdapter
from tollhouse.inference.formats.messages.provider_format import MessagesProviderFormat
from tollhouse.inference.formats.messages.request import parse_request as parse_messages
from tollhouse.inference.formats.responses.client_format import ResponsesClientFormat
from tollhouse.inference.formats.responses.passthrough import ResponsesPassthroughAdapter
from tollhouse.inference.formats.responses.provider_format import ResponsesProviderFormat
from tollhouse.inference.formats.responses.request import parse_request as parse_responses
from tollhouse.kernel.envelope import envelope
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tollhouse.inference.formats.adapter import ClientRequest, FormatAdapter
    from tollhouse.kernel.errors import TollhouseError

_CHAT_PROVIDER: Final = ChatProviderFormat()
_RESPONSES_PROVIDER: Final = ResponsesProviderFormat()
_MESSAGES_PROVIDER: Final = MessagesProviderFormat()
_VISIBLE: Final = re.compile(rb"[!-~]*")
_PRINTABLE: Final = re.compile(rb"[\t -~]*")
_ANTHROPIC_HEADERS: Final = ("anthropic-version", "anthropic-beta")
FORMAT_HEADERS: Final = tuple(name.encode() for name in _ANTHROPIC_HEADERS)
"""The request headers that a format reads."""


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as received over HTTP."""

    body: bytes = field(repr=False)
    headers: Mapping[bytes, bytes] = field(repr=False)
    """Names in lower case."""
    query: bytes = field(repr=False)
    """The URL's query string, without the `?`."""


ParsedRequest = tuple["ClientRequest", tuple["FormatAdapter", ...]]
"""A request and its adapters in order of preference, one for each dialect."""


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """An API format that clients use."""

    parse: Callable[[RawRequest], ParsedRequest]
    """Raises `Invalid` for a body that is not of the format."""
    render_error: Callable[[TollhouseError, str | None], Mapping[str, object]]
    """Renders the body of an error response; takes the generation's id if there is one."""
    anthropic: bool = False
    """Whether `metadata` is Anthropic's, not the gateway's."""


def _parse_chat(raw_request: RawRequest) -> ParsedRequest:
    request = parse_chat(raw_request.body)
    client_format = ChatClientFormat(request)
    return request, (
        ChatPassthroughAdapter(request),
        TranslatingAdapter(request, client_format, _RESPONSES_PROVIDER),
        TranslatingAdapter(request, client_format, _MESSAGES_PROVIDER),
    )


def _parse_responses(raw_request: RawRequest) -> ParsedRequest:
    request = parse_responses(raw_request.body)
    client_format = ResponsesClientFormat(request)
    return request, (
        ResponsesPassthroughAdapter(request),
        TranslatingAdapter(request, client_format, _CHAT_PROVIDER),
        TranslatingAdapter(request, client_format, _MESSAGES_PROVIDER),
    )


def _parse_messages(raw_request: RawRequest) -> ParsedRequest:
    request = parse_messages(raw_request.body)
    client_format = MessagesClientFormat(request)
    return request, (
        MessagesPassthroughAdapter(
            request, forwarded_query(raw_request), forwarded_headers(raw_request)
        ),
        TranslatingAdapter(request, client_format, _CHAT_PROVIDER),
        TranslatingAdapter(request, client_format, _RESPONSES_PROVIDER),
    )


def forwarded_query(raw_request: RawRequest) -> str:
    """Return the query string that is forwarded to a provider of the same format."""
    if not _VISIBLE.fullmatch(raw_request.query):
        message = "The query of the URL must be plain ASCII."
        raise Invalid(message)
    return raw_request.query.decode("ascii")


def forwarded_headers(raw_request: RawRequest) -> tuple[tuple[str, str], ...]:
    """Return the headers that are forwarded to a provider of Anthropic's format."""
    given = ((name, raw_request.headers.get(name.encode())) for name in _ANTHROPIC_HEADERS)
    passed = [(name, value) for name, value in given if value is not None]
    for name, value in passed:
        if not _PRINTABLE.fullmatch(value):
            raise Invalid(f"{name}: must be plain ASCII.")
    return tuple((name, value.decode("ascii")) for name, value in passed)


def _parse_completions(raw_request: RawRequest) -> ParsedRequest:
    request = parse_completions(raw_request.body)
    client_format = CompletionsClientFormat(request)
    return request, (
        CompletionsPassthroughAdapter(request),
        TranslatingAdapter(request, client_format, _CHAT_PROVIDER),
        TranslatingAdapter(request, client_format, _RESPONSES_PROVIDER),
        TranslatingAdapter(request, client_format, _MESSAGES_PROVIDER),
    )


def _parse_embeddings(raw_request: RawRequest) -> ParsedRequest:
    request = parse_embeddings(raw_request.body)
    return request, (EmbeddingsPassthroughAdapter(request),)


def _common_envelope(error: TollhouseError, request_id: str | None) -> Mapping[str, object]:
    del request_id
    return envelope(error)


FORMATS: Final[Mapping[str, ApiFormat]] = {
    "/chat/completions": ApiFormat(_parse_chat, _common_envelope),
    "/responses": ApiFormat(_parse_responses, _common_envelope),
    "/messages": ApiFormat(_parse_messages, messages_envelope, anthropic=True),
    "/completions": ApiFormat(_parse_completions, _common_envelope),
    "/embeddings": ApiFormat(_parse_embeddings, _common_envelope),
}
"""Formats by path."""
