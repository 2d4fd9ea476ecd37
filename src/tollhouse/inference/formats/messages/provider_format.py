"""The provider side of the messages format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.messages.canonical_response import parse_response
from tollhouse.inference.formats.messages.provider_body import render_provider_body
from tollhouse.inference.formats.messages.stream_decoder import MessagesStreamDecoder
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from tollhouse.inference.formats.canonical.request import CanonicalRequest
    from tollhouse.inference.formats.canonical.response import CanonicalResponse
    from tollhouse.inference.types import Endpoint, Profile

SUPPORTED_PARAMETERS: Final = frozenset(
    {
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "stop",
        "output",
        "thinking",
        "user",
        "temperature",
        "top_p",
        "top_k",
        "service_tier",
    }
)

_CANONICAL_NAMES: Final = {"output_config": "output", "metadata": "user", "stop_sequences": "stop"}


class MessagesProviderFormat:
    """Implements `formats.canonical.ports.ProviderFormat`."""

    dialect = Dialect.MESSAGES
    supported_parameters = SUPPORTED_PARAMETERS

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider rejects, by their canonical names."""
        return frozenset(_CANONICAL_NAMES.get(name, name) for name in profile.refuses)

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the provider's request body; parameters that the dialect lacks are left out."""
        return render_provider_body(prompt, endpoint)

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Parse a complete response."""
        return parse_response(body)

    def stream_decoder(self) -> MessagesStreamDecoder:
        """Return the decoder of one stream."""
        return MessagesStreamDecoder()
