"""Passes messages requests through to providers of the messages dialect."""

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
    """Implements `formats.adapter.FormatAdapter`."""

    dialect = Dialect.MESSAGES

    def __init__(
        self,
        request: MessagesRequest,
        query: str = "",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Adapt a request.

        Args:
            request: The request.
            query: The query string that is forwarded to the provider (`beta=true`).
            headers: The headers that are forwarded (`anthropic-beta`), names in lower case.
        """
        self._request = request
        self.query = query
        self.headers = headers

    def without_content(self, *, parsed: bool = False) -> MessagesPassthroughAdapter:
        """Return a copy without the conversation's content."""
        del parsed
        return MessagesPassthroughAdapter(without_content(self._request), self.query, self.headers)

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        return self._request.fields.keys() & endpoint.profile.refuses

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body."""
        return provider_request(self._request, endpoint)

    def parse_response(self, body: bytes) -> MessagesResponse:
        """Parse a provider's complete response."""
        return parse_messages_response(body, self._request)

    def open_stream(self, identity: ReplyIdentity) -> MessagesStream:
        """Return the adapter of one streamed response."""
        return MessagesStream(identity, self._request)
