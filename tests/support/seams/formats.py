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

from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.types import Price, Rates
from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    ErrorEvent,
    FormatAdapter,
    MalformedResponse,
)
from tollhouse.inference.formats.provider_errors import read_error
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.formats.usage import (
    COUNTS,
    PLACES,
    Counts,
    final,
    find_counts,
    later,
    read_counts,
    usage_of,
)
from tollhouse.inference.formats.wire import raw
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity
from tollhouse.kernel.errors import Bug, Invalid, ProviderUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.kernel.errors import TollhouseError

__all__ = [
    "COUNTS",
    "CUT",
    "DIALECTS",
    "IDENTITY",
    "PAIRS",
    "PLACES",
    "AdaptedResponse",
    "AdaptedStream",
    "Bug",
    "Counts",
    "ErrorEvent",
    "FormatAdapter",
    "Invalid",
    "MalformedResponse",
    "adapter",
    "charge",
    "endpoint",
    "error_body",
    "final",
    "find_counts",
    "later",
    "provider_error",
    "raw",
    "read_counts",
    "usage_of",
]

IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
DIALECTS = {
    "chat": Dialect.CHAT,
    "responses": Dialect.RESPONSES,
    "messages": Dialect.MESSAGES,
    "completions": Dialect.COMPLETIONS,
    "embeddings": Dialect.EMBEDDINGS,
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


def adapter(client: str, dialect: str, body: bytes) -> FormatAdapter:
    """Return the adapter of a client's request to a dialect; raises `Invalid`."""
    return FORMATS[f"/{DIALECTS[client]}"].parse(body, {}, b"")[DIALECTS[dialect]]


def endpoint(profile: dict[str, Any] | None = None, **fields: Any) -> Endpoint:
    """Return an endpoint; lists in its profile become sets."""
    known = {
        name: frozenset(value) if isinstance(value, list) else value
        for name, value in (profile or {}).items()
    }
    return replace(_ENDPOINT, profile=Profile(**known), **fields)


def charge(reading: AdaptedResponse | AdaptedStream) -> Charge:
    """Return the charge for what was read of a reply."""
    return charge_for(
        reading.reported,
        reading.seen,
        _PRICE,
        finish_reason=reading.finish_reason,
        broken_off=False,
    )


def error_body(client: str, error: TollhouseError, generation: str | None) -> Mapping[str, Any]:
    """Return the body of a client's error before the first byte of a reply."""
    return FORMATS[f"/{DIALECTS[client]}"].render_error(error, generation)


def provider_error(body: bytes) -> ErrorEvent:
    """Return what a provider says in the body of an error."""
    return read_error(body)
