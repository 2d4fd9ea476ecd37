"""Chat on chat: passed through, with what is ours changed and the rest untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.chat_completions.passthrough_bodies import (
    parse_chat_response,
    provider_request,
    rejected_fields,
)
from tollhouse.inference.formats.chat_completions.stream import ChatStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Collection

    from tollhouse.inference.formats.chat_completions.passthrough_bodies import ChatResponse
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.types import Endpoint, ReplyIdentity


class ChatPassthroughAdapter:
    """Fulfils `formats.adapter.FormatAdapter`."""

    dialect = Dialect.CHAT
    query = ""
    headers = ()

    def __init__(self, request: ChatRequest) -> None:
        """Take the request."""
        self._request = request

    def without_content(self, *, parsed: bool = False) -> ChatPassthroughAdapter:
        """Return this without what is said."""
        del parsed
        return ChatPassthroughAdapter(without_content(self._request))

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that an endpoint would not get."""
        return rejected_fields(self._request, endpoint)

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the body for a provider."""
        return provider_request(self._request, endpoint)

    def parse_response(self, body: bytes) -> ChatResponse:
        """Read a provider's whole reply."""
        return parse_chat_response(body, self._request)

    def open_stream(self, identity: ReplyIdentity) -> ChatStream:
        """Begin to relay a stream."""
        return ChatStream(identity, self._request)
