"""The formats of the inference API, as far as tests of requests and replies use them.

    adapter(client, dialect, body)  -> translates the request, its reply and its stream
    endpoint(...), charge(reading)  -> what they are rendered for
    error_body(client, error, id)   -> a client's error
    provider_error(body)            -> a provider's error

Clients and dialects go by their names in the documentation: chat, responses, messages, ...
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.support.seams import names
from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.types import Price, Rates
from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    ErrorEvent,
    FormatAdapter,
)
from tollhouse.inference.formats.provider_errors import read_error
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity
from tollhouse.kernel.errors import ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.kernel.errors import TollhouseError

__getattr__ = names(
    "tollhouse",
    {
        "inference.formats.adapter": "MalformedResponse",
        "inference.formats.usage": (
            "COUNTS Counts final find_counts later PLACES read_counts usage_of"
        ),
        "inference.formats.wire": "raw",
        "kernel.errors": "Bug Invalid",
    },
)
IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
DIALECTS = {
    name: Dialect[name.upper()]
    for name in ("chat", "responses", "messages", "completions", "embeddings")
}
PAIRS = [
    *((name, name) for name in DIALECTS),
    *(
        (client, dialect)
        for client in ("chat", "responses", "messages", "completions")
        for dialect in ("chat", "responses", "messages")
        if client != dialect
    ),
]
"""A client's format and a provider's between which there is an adapter."""
_PRICE = Price(
    Rates(
        prompt=Decimal("0.000001"),
        completion=Decimal("0.000004"),
        cache_read=Decimal("0.0000001"),
        cache_write=Decimal("0.00000125"),
        cache_write_1h=Decimal("0.000002"),
        web_search=Decimal(0),
    )
)
_ENDPOINT = Endpoint("acme", "large-2026", _PRICE)


class Asked:
    """A client's request, as a provider of a dialect is asked; the methods are the adapter's."""

    def __init__(self, path: str, dialect: Dialect, body: bytes) -> None:
        adapters = FORMATS[path].parse(body, {}, b"")
        self.adapter, self.body = adapters[dialect], body
        self._read = None if dialect is adapters.api_format.dialect else adapters.read

    def render_request(self, endpoint: Endpoint) -> bytes:
        return self.adapter.render_request(self.body, endpoint)

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        return self._known().unsupported_parameters(endpoint)

    def parse_response(self, body: bytes) -> AdaptedResponse:
        return self._known().parse_response(body)

    def open_stream(self, identity: ReplyIdentity) -> AdaptedStream:
        return self._known().open_stream(identity)

    def _known(self) -> FormatAdapter:
        if self._read is not None:
            self._read(self.body)
            self._read = None
        return self.adapter


def adapter(client: str, dialect: str, body: bytes) -> Asked:
    """Return a client's request, as a provider of a dialect is asked; raises `Invalid`."""
    return Asked(f"/{DIALECTS[client]}", DIALECTS[dialect], body)


def endpoint(profile: dict[str, Any] | None = None, **fields: Any) -> Endpoint:
    """Return an endpoint; lists in its profile become sets."""
    known = {
        name: frozenset(value) if isinstance(value, list) else value
        for name, value in (profile or {}).items()
    }
    return replace(_ENDPOINT, profile=Profile(**known), **fields)


def charge(reading: AdaptedResponse | AdaptedStream) -> Charge:
    """Return the charge for what was read of a reply."""
    reason = reading.finish_reason
    return charge_for(
        reading.reported, reading.seen, _PRICE, finish_reason=reason, broken_off=False
    )


def error_body(client: str, error: TollhouseError, generation: str | None) -> Mapping[str, Any]:
    """Return the body of a client's error before the first byte of a reply."""
    return FORMATS[f"/{DIALECTS[client]}"].render_error(error, generation)


def provider_error(body: bytes) -> ErrorEvent:
    """Return what a provider says in the body of an error."""
    return read_error(body)
