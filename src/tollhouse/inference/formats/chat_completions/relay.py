"""Chat on chat: passed through, with what is ours changed and the rest untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.chat_completions.render import parse_whole, provider_request
from tollhouse.inference.formats.chat_completions.stream import ChatStream
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from tollhouse.inference.formats.chat_completions.render import WholeReply
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.types import ReplyIdentity


class ChatRelay:
    """Fulfils `formats.base.Relay`."""

    dialect = Dialect.CHAT

    def __init__(self, request: ChatRequest) -> None:
        """Take the request."""
        self._request = request

    def ask(self, model: str) -> bytes:
        """Return the body for a provider."""
        return provider_request(self._request, model)

    def whole(self, body: bytes) -> WholeReply:
        """Read a provider's whole reply."""
        return parse_whole(body, self._request)

    def stream(self, identity: ReplyIdentity) -> ChatStream:
        """Begin to relay a stream."""
        return ChatStream(identity, self._request)
