"""The responses dialect of a provider.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.responses.ask import provider_body
from tollhouse.inference.formats.responses.read import read_reply, read_response
from tollhouse.inference.formats.responses.reader import ResponsesReader
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from tollhouse.inference.formats.hub.prompt import Prompt
    from tollhouse.inference.formats.hub.reply import Reply
    from tollhouse.inference.types import Endpoint, Profile

SAYS: Final = frozenset(
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

_IN_OUR_WORDS: Final = {
    "max_output_tokens": "max_tokens",
    "reasoning": "thinking",
    "text": "output",
}


class ResponsesSpeaker:
    """Fulfils `formats.hub.ports.Speaker`."""

    dialect = Dialect.RESPONSES
    says = SAYS

    def refused(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider refuses, by the names of `SAYS`."""
        return frozenset(_IN_OUR_WORDS.get(name, name) for name in profile.refuses)

    def ask(self, prompt: Prompt, endpoint: Endpoint) -> bytes:
        """Return the body of a request; what the dialect cannot say is left out."""
        return provider_body(prompt, endpoint)

    def read(self, body: bytes) -> Reply:
        """Read a whole reply.

        Raises:
            Unreadable: It is none of the dialect.
            ErrorEvent: It is the provider's error, under a success status.
        """
        return read_reply(read_response(body))

    def reader(self) -> ResponsesReader:
        """Begin to read a stream."""
        return ResponsesReader()
