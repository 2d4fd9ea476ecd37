"""The messages dialect towards a provider whose client speaks another format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.messages.body import render_body
from tollhouse.inference.formats.messages.reader import MessagesReader
from tollhouse.inference.formats.messages.reply import read_reply
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

_IN_OUR_WORDS: Final = {"output_config": "output", "metadata": "user", "stop_sequences": "stop"}


class MessagesSpeaker:
    """Fulfils `formats.hub.ports.Speaker`."""

    dialect = Dialect.MESSAGES
    says = SAYS

    def refused(self, profile: Profile) -> frozenset[str]:
        """Return the parameters that a provider refuses, by the names of `SAYS`."""
        return frozenset(_IN_OUR_WORDS.get(name, name) for name in profile.refuses)

    def ask(self, prompt: Prompt, endpoint: Endpoint) -> bytes:
        """Return the body of a request; what the dialect cannot say is left out."""
        return render_body(prompt, endpoint)

    def read(self, body: bytes) -> Reply:
        """Read a whole reply."""
        return read_reply(body)

    def reader(self) -> MessagesReader:
        """Begin to read a stream."""
        return MessagesReader()
