"""The responses dialect of a provider.

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
    """Fulfils `formats.canonical.ports.ProviderFormat`."""

    dialect = Dialect.RESPONSES
    supported_parameters = SUPPORTED_PARAMETERS

    def rejected_parameters(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider refuses, by the names of `SUPPORTED_PARAMETERS`."""
        return frozenset(_CANONICAL_NAMES.get(name, name) for name in profile.refuses)

    def render_request(self, prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
        """Return the body of a request; what the dialect cannot say is left out."""
        return render_provider_body(prompt, endpoint)

    def parse_response(self, body: bytes) -> CanonicalResponse:
        """Read a whole reply.

        Raises:
            MalformedResponse: It is none of the dialect.
            ErrorEvent: It is the provider's error, under a success status.
        """
        return parse_response(decode_response(body))

    def stream_decoder(self) -> ResponsesStreamDecoder:
        """Begin to read a stream."""
        return ResponsesStreamDecoder()
