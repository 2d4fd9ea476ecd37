"""Chat on chat: passed through, with what is ours changed and the rest untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.base import without_said
from tollhouse.inference.formats.chat_completions.render import (
    parse_whole,
    provider_request,
    refused_fields,
)
from tollhouse.inference.formats.chat_completions.stream import ChatStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.inference.formats.chat_completions.render import WholeReply
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity


class ChatRelay:
    """Fulfils `formats.base.Relay`."""

    dialect = Dialect.CHAT
    query = ""
    headers = ()

    def __init__(self, request: ChatRequest) -> None:
        """Take the request."""
        self._request = request

    def told(self, *, parsed: bool = False) -> ChatRelay:
        """Return this without what is said."""
        del parsed
        return ChatRelay(without_said(self._request))

    def lost(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        return refused_fields(self._request, endpoint)

    def ask(self, endpoint: Endpoint) -> bytes:
        """Return the body for a provider."""
        return provider_request(self._request, endpoint)

    def whole(self, body: bytes) -> WholeReply:
        """Read a provider's whole reply."""
        return parse_whole(body, self._request)

    def stream(self, identity: ReplyIdentity) -> ChatStream:
        """Begin to relay a stream."""
        return ChatStream(identity, self._request)
