"""Passes chat requests through to providers of the chat dialect.

Only the gateway's own fields are changed.
"""

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
    """Implements `formats.adapter.FormatAdapter`."""

    dialect = Dialect.CHAT
    query = ""
    headers = ()

    def __init__(self, request: ChatRequest) -> None:
        self._request = request

    def without_content(self, *, parsed: bool = False) -> ChatPassthroughAdapter:
        """Return a copy without the conversation's content."""
        del parsed
        return ChatPassthroughAdapter(without_content(self._request))

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        return rejected_fields(self._request, endpoint)

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body."""
        return provider_request(self._request, endpoint)

    def parse_response(self, body: bytes) -> ChatResponse:
        """Parse a provider's complete response."""
        return parse_chat_response(body, self._request)

    def open_stream(self, identity: ReplyIdentity) -> ChatStream:
        """Return the adapter of one streamed response."""
        return ChatStream(identity, self._request)
