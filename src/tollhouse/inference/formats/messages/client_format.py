"""The client side of the messages format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.adapter import without_content
from tollhouse.inference.formats.messages.canonical_request import parse_canonical_request
from tollhouse.inference.formats.messages.canonical_response import render_response
from tollhouse.inference.formats.messages.stream_encoder import MessagesStreamEncoder

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.types import ReplyIdentity


class MessagesClientFormat:
    """Implements `formats.canonical.ports.ClientFormat`."""

    def __init__(self, request: MessagesRequest) -> None:
        self._request = request

    def parse_request(self) -> CanonicalRequest:
        """Return the request in canonical form."""
        return parse_canonical_request(self._request)

    def without_content(self, prompt: CanonicalRequest | None) -> MessagesClientFormat:
        """Return a copy without the conversation's content."""
        del prompt
        return MessagesClientFormat(without_content(self._request))

    def render_response(
        self, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
    ) -> bytes:
        """Return the body of a complete response."""
        return render_response(reply, identity, charge)

    def stream_encoder(self, identity: ReplyIdentity) -> MessagesStreamEncoder:
        """Return the encoder of one stream."""
        return MessagesStreamEncoder(identity)
