"""Messages on messages: passed through, with what is ours changed and the rest untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.base import without_said
from tollhouse.inference.formats.messages.render import parse_whole, provider_request
from tollhouse.inference.formats.messages.stream import MessagesStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.inference.formats.messages.render import WholeReply
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity


class MessagesRelay:
    """Fulfils `formats.base.Relay`."""

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

    def told(self, *, parsed: bool = False) -> MessagesRelay:
        """Return this without what is said."""
        del parsed
        return MessagesRelay(without_said(self._request), self.query, self.headers)

    def lost(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        return self._request.fields.keys() & endpoint.profile.refuses

    def ask(self, endpoint: Endpoint) -> bytes:
        """Return the body for a provider."""
        return provider_request(self._request, endpoint)

    def whole(self, body: bytes) -> WholeReply:
        """Read a provider's whole reply."""
        return parse_whole(body, self._request)

    def stream(self, identity: ReplyIdentity) -> MessagesStream:
        """Begin to relay a stream."""
        return MessagesStream(identity, self._request)
