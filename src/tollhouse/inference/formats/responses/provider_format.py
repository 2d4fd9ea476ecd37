"""The provider side of the responses format.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.responses.provider_body import render_provider_body
from tollhouse.inference.formats.responses.response_parser import decode_response, parse_response
from tollhouse.inference.formats.responses.stream_decoder import ResponsesStreamDecoder
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
        "output",
        "thinking",
        "verbosity",
        "logprobs",
        "top_logprobs",
        "user",
        "metadata",
        "temperature",
        "top_p",
        "prompt_cache_key",
        "service_tier",
        "safety_identifier",
    }
)

_CANONICAL_NAMES: Final = {
    "max_output_tokens": "max_tokens",
    "reasoning": "thinking",
    "text": "output",
}


class ResponsesProviderFormat:
    """Implements `formats.canonical.ports.ProviderFormat`."""

    dialect = Dialect.RESPONSES
    supported_parameters = SUPPORTED_PARAMETERS

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider rejects, by their canonical names."""
        return frozenset(_CANONICAL_NAMES.get(name, name) for name in profile.refuses)

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the provider's request body; parameters that the dialect lacks are left out."""
        return render_provider_body(prompt, endpoint)

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Parse a complete response.

        Raises:
            MalformedResponse: The body is not of the dialect.
            ErrorEvent: The body is the provider's error, sent with a success status.
        """
        return parse_response(decode_response(body))

    def stream_decoder(self) -> ResponsesStreamDecoder:
        """Return the decoder of one stream."""
        return ResponsesStreamDecoder()
