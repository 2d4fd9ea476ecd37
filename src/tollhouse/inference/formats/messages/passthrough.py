"""Messages on messages: passed through, with what is ours changed and the rest untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.messages.passthrough_bodies import (
    parse_messages_response,
    provider_request,
)
from tollhouse.inference.formats.messages.stream import MessagesStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.inference.formats.messages.passthrough_bodies import MessagesResponse
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity


class MessagesPassthroughAdapter:
    """Fulfils `formats.adapter.FormatAdapter`."""

    dialect = Dialect.MESSAGES

    def __init__(
        self,
        request: MessagesRequest,
        query: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Take the request.

        Args:
            request: The request.
            query: The part of its URL behind the `?` that the provider gets (`beta=true`).
            headers: Those of its headers that the provider gets (`anthropic-beta`), in lower case.
        """
        self._request = request
        self.query = query
        self.headers = headers

    def without_content(self, *, parsed: bool = False) -> MessagesPassthroughAdapter:
        """Return this without what is said."""
        del parsed
        return MessagesPassthroughAdapter(without_content(self._request), self.query, self.headers)

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        return self._request.fields.keys() & endpoint.profile.refuses

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the body for a provider."""
        return provider_request(self._request, endpoint)

    def parse_response(self, body: bytes) -> MessagesResponse:
        """Read a provider's whole reply."""
        return parse_messages_response(body, self._request)

    def open_stream(self, identity: ReplyIdentity) -> MessagesStream:
        """Begin to relay a stream."""
        return MessagesStream(identity, self._request)
