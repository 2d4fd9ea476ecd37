"""What the comparison of versions asks of the formats; a rewrite of them changes this file alone.

    Exchange(...)   one client's request to one dialect: `sent`, `lost`, `forwarded`, `read`, `open`
    shown, ended    what the client gets of a reply, and at the end of a stream
    facts(reading)  what is read of a reply, or of a stream so far, for its charge and its record
    error_body, provider_error, error_in_reply, events_of

Clients and dialects go by their names in the documentation, bodies are bytes. `Refused`,
`Malformed` and `ErrorReported` are what may be raised.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from tests.support.seams.formats import (
    CUT,
    DIALECTS,
    IDENTITY,
    AdaptedResponse,
    AdaptedStream,
    Bug,
    ErrorEvent,
    FormatAdapter,
    Invalid,
    MalformedResponse,
    charge,
    endpoint,
    error_body,
    provider_error,
)
from tests.support.seams.inference import FORMATS, error_in_place_of_reply, whole_reply_events

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

__all__ = [
    "CUT",
    "ErrorReported",
    "Exchange",
    "Malformed",
    "Refused",
    "ended",
    "error_body",
    "error_in_reply",
    "events_of",
    "facts",
    "provider_error",
    "shown",
]
Refused, Malformed, ErrorReported = Invalid, MalformedResponse, ErrorEvent
error_in_reply = error_in_place_of_reply


class Exchange:
    """One client's request to one dialect, and what a provider answers."""

    def __init__(
        self, client: str, dialect: str, body: bytes, headers: Mapping[bytes, bytes], query: bytes
    ) -> None:
        adapters = FORMATS[f"/{DIALECTS[client]}"].parse(body, headers, query)
        self._adapters, self._body = adapters, body
        self._dialect = DIALECTS[dialect]
        self._adapter: FormatAdapter = adapters[self._dialect]
        request = adapters.request
        self.asks = {"model": request.model, "stream": request.stream, "size": request.size}

    @property
    def forwarded(self) -> dict[str, Any]:
        """The query and the headers that the provider gets."""
        return {"query": self._adapter.query, "headers": [*map(list, self._adapter.headers)]}

    def sent(self, fields: Mapping[str, Any]) -> bytes:
        return self._adapter.render_request(self._body, endpoint(**fields))

    def lost(self, fields: Mapping[str, Any]) -> list[str]:
        return sorted(self._known().unsupported_parameters(endpoint(**fields)))

    def lost_without_content(self, fields: Mapping[str, Any]) -> list[str]:
        return self.lost(fields)

    def read(self, body: bytes, *, content: bool = True) -> AdaptedResponse:
        """Read a whole reply; no adapter has the conversation, with or without `content`."""
        del content
        with self._reading() as adapter:
            return self._adapters.reader(adapter, body, self._body).parse_response(body)

    def open(self, maker: str, tokens: int, *, content: bool = True) -> AdaptedStream:
        del content
        with self._reading() as adapter:
            return adapter.open_stream(replace(IDENTITY, maker=maker, input_tokens=tokens))

    @contextmanager
    def _reading(self) -> Generator[FormatAdapter]:
        """Read a reply as after `sent`, also to a request that cannot be sent: it may be an error.

        Raises what `sent` does where more is needed of the request.
        """
        refused: Refused | None = None
        try:
            self._known()
        except Refused as error:
            refused = error
        try:
            yield self._adapter
        except Bug:
            raise refused or Bug("it was read") from None

    def _known(self) -> FormatAdapter:
        """Return the adapter once it knows what the request says, as after `sent`."""
        if self._dialect is not self._adapters.api_format.dialect:
            self._adapters.read(self._body)
        return self._adapter


def shown(reading: AdaptedResponse, maker: str) -> bytes:
    """Return a whole reply as the client gets it."""
    return reading.render(replace(IDENTITY, maker=maker), charge(reading))


def ended(stream: AdaptedStream) -> bytes:
    """Return the end of a stream that is complete."""
    return stream.end(charge(stream))


def facts(reading: AdaptedResponse | AdaptedStream) -> dict[str, Any]:
    """Return what is read of a reply, or of a stream so far, for its charge and its record."""
    found = {
        "reported": None if reading.reported is None else asdict(reading.reported),
        "seen": asdict(reading.seen),
        "finish": reading.finish_reason,
        "native_finish": reading.native_finish_reason,
        "upstream_id": reading.upstream_id,
    }
    if isinstance(reading, AdaptedStream):
        found |= {"done": reading.done, "complete": reading.complete, "silent": reading.is_silent}
    return found


def events_of(dialect: str, body: bytes) -> list[bytes]:
    """Return a whole reply as the events of a stream; none if it is no reply."""
    return whole_reply_events(DIALECTS[dialect], body)
