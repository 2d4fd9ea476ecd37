"""The formats of the inference API: request parsing and error rendering, by path.

    path -> ApiFormat.parse(body, ...)    -> Adapters: the request, and its adapter by dialect
            ApiFormat.render_error(error) -> the body of an error before the first byte

Adapters are the product of the clients' formats and the providers': a format is added with one
entry in `_FORMATS` or in `PROVIDER_FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tollhouse.inference.formats.chat import parse_request as parse_chat
from tollhouse.inference.formats.chat_passthrough import ChatPassthroughAdapter
from tollhouse.inference.formats.chat_replies import CHAT_CLIENT, CHAT_PROVIDER
from tollhouse.inference.formats.completions import (
    COMPLETIONS_CLIENT,
    CompletionsPassthroughAdapter,
)
from tollhouse.inference.formats.completions import parse_request as parse_completions
from tollhouse.inference.formats.embeddings import EmbeddingsPassthroughAdapter
from tollhouse.inference.formats.embeddings import parse_request as parse_embeddings
from tollhouse.inference.formats.messages import MessagesPassthroughAdapter
from tollhouse.inference.formats.messages import envelope as messages_envelope
from tollhouse.inference.formats.messages import parse_request as parse_messages
from tollhouse.inference.formats.messages_replies import MESSAGES_CLIENT, MESSAGES_PROVIDER
from tollhouse.inference.formats.responses import (
    RESPONSES_CLIENT,
    RESPONSES_PROVIDER,
    ResponsesPassthroughAdapter,
)
from tollhouse.inference.formats.responses import parse_request as parse_responses
from tollhouse.inference.formats.translation import TranslatingAdapter, TranslationSource
from tollhouse.inference.sse import is_event_stream
from tollhouse.inference.types import Dialect
from tollhouse.kernel.errors import Invalid, TollhouseError, error_body

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tollhouse.inference.formats.adapter import ClientRequest, FormatAdapter
    from tollhouse.inference.formats.translation import ClientFormat, ProviderFormat

_VISIBLE: Final = re.compile(rb"[!-~]*")
_PRINTABLE: Final = re.compile(rb"[\t -~]*")
_FORWARDED: Final[Mapping[str, bytes]] = {
    name: name.encode() for name in ("anthropic-version", "anthropic-beta")
}
FORMAT_HEADERS: Final = tuple(_FORWARDED.values())
"""The request headers that a format reads."""


Headers = Mapping[bytes, bytes]
"""Header fields by their names in lower case."""


def _common_envelope(error: TollhouseError, request_id: str | None) -> Mapping[str, object]:
    del request_id
    return error_body(error)


class Adapters(Mapping["Dialect", "FormatAdapter"]):
    """The adapters of one request by dialect, the best first; each is built when it is needed.

    The client's own format, passed through, comes first; then chat completions, which can express
    the most of the others; then the remaining dialects. All translations share one parsed request.
    """

    def __init__(self, request: ClientRequest, api_format: ApiFormat) -> None:
        self.request = request
        self.api_format = api_format
        self._built: dict[Dialect, FormatAdapter] = {}
        self._shared: TranslationSource | None = None

    @property
    def _source(self) -> TranslationSource | None:
        """What all translations share; None if there is none."""
        client_format = self.api_format.client_format
        if self._shared is None and client_format is not None:
            self._shared = TranslationSource(self.request, client_format)
        return self._shared

    @property
    def passthrough(self) -> FormatAdapter:
        """The adapter to the client's own format."""
        return self[self.api_format.dialect]

    def reader(self, adapter: FormatAdapter, reply: bytes, body: bytes) -> FormatAdapter:
        """Return the adapter that reads a whole reply: if it was streamed, the translation.

        Raises `Invalid` if the request, whose body this is, cannot be translated.
        """
        source, provider = self._source, PROVIDER_FORMATS.get(adapter.dialect)
        if source is None or provider is None or not is_event_stream(reply):
            return adapter
        if adapter.dialect is not self.api_format.dialect:
            return adapter  # it is one
        source.read(body)
        return TranslatingAdapter(source, provider)

    def read(self, body: bytes) -> None:
        """Have translations know what they say in place of the body's parameters."""
        if self._source is not None:
            self._source.read(body)

    def __getitem__(self, dialect: Dialect) -> FormatAdapter:
        """Return the adapter to a dialect; raises `KeyError` if the format has none."""
        adapter = self._built.get(dialect)
        if adapter is None:
            adapter = self._built[dialect] = self._build(dialect)
        return adapter

    def __iter__(self) -> Iterator[Dialect]:
        """Iterate over the dialects, the best first."""
        return iter(_DIALECTS[self.api_format.path])

    def __len__(self) -> int:
        """Return the number of dialects."""
        return len(_DIALECTS[self.api_format.path])

    def _build(self, dialect: Dialect) -> FormatAdapter:
        if dialect is self.api_format.dialect:
            return self.api_format.passthrough(self.request)
        source = self._source
        if source is None:
            raise KeyError(dialect)
        return TranslatingAdapter(source, PROVIDER_FORMATS[dialect])


@dataclass(frozen=True, slots=True)
class ApiFormat:
    """An API format that clients use."""

    path: str
    """The path of the API, without its version."""
    dialect: Dialect
    """The format as a provider's, to which requests are passed through."""
    parse_body: Callable[[bytes], Any]
    """Parses the body of a request; raises `Invalid` if it is not of the format."""
    passthrough: Callable[[Any], FormatAdapter]
    """Returns the adapter of a request to a provider of the same format."""
    client_format: ClientFormat | None = None
    """Translates to all other dialects; None if there is no translation."""
    render_error: Callable[[TollhouseError, str | None], Mapping[str, object]] = _common_envelope
    """Renders the body of an error response; takes the generation's id if there is one."""
    anthropic: bool = False
    """Whether `metadata` is Anthropic's, and Anthropic's headers and query are forwarded."""

    def parse(self, body: bytes, headers: Headers, query: bytes) -> Adapters:
        """Parse a request: its body, those of its headers in `FORMAT_HEADERS`, its URL's query.

        Raises `Invalid` if it is not of the format.
        """
        request = self.parse_body(body)
        if self.anthropic:
            own_query, own_headers = forwarded_query(query), forwarded_headers(headers)
            if own_query or own_headers:
                request = replace(request, query=own_query, headers=own_headers)
        return Adapters(request, self)


def forwarded_query(query: bytes) -> str:
    """Return the query string that is forwarded to a provider of the same format."""
    if query and not _VISIBLE.fullmatch(query):
        raise Invalid("The query of the URL must be plain ASCII.")
    return query.decode("ascii")


def forwarded_headers(headers: Headers) -> tuple[tuple[str, str], ...]:
    """Return the headers that are forwarded to a provider of Anthropic's format."""
    passed: list[tuple[str, str]] = []
    for name, key in _FORWARDED.items():
        value = headers.get(key)
        if value is None:
            continue
        if not _PRINTABLE.fullmatch(value):
            raise Invalid(f"{name}: must be plain ASCII.")
        passed.append((name, value.decode("ascii")))
    return tuple(passed)


_FORMATS: Final = (
    ApiFormat("/chat/completions", Dialect.CHAT, parse_chat, ChatPassthroughAdapter, CHAT_CLIENT),
    ApiFormat(
        "/responses",
        Dialect.RESPONSES,
        parse_responses,
        ResponsesPassthroughAdapter,
        RESPONSES_CLIENT,
    ),
    ApiFormat(
        "/messages",
        Dialect.MESSAGES,
        parse_messages,
        MessagesPassthroughAdapter,
        MESSAGES_CLIENT,
        messages_envelope,
        anthropic=True,
    ),
    ApiFormat(
        "/completions",
        Dialect.COMPLETIONS,
        parse_completions,
        CompletionsPassthroughAdapter,
        COMPLETIONS_CLIENT,
    ),
    ApiFormat("/embeddings", Dialect.EMBEDDINGS, parse_embeddings, EmbeddingsPassthroughAdapter),
)
FORMATS: Final[Mapping[str, ApiFormat]] = {each.path: each for each in _FORMATS}
"""Formats by path."""
PROVIDER_FORMATS: Final[Mapping[Dialect, ProviderFormat]] = {
    each.dialect: each for each in (CHAT_PROVIDER, RESPONSES_PROVIDER, MESSAGES_PROVIDER)
}
"""The dialects to which requests of other formats are translated, the best first."""
_DIALECTS: Final[Mapping[str, tuple[Dialect, ...]]] = {
    each.path: tuple(
        dict.fromkeys((each.dialect, *(() if each.client_format is None else PROVIDER_FORMATS)))
    )
    for each in _FORMATS
}
"""The dialects of each format, by its path: its own, then those of its translations."""
