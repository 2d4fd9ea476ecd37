"""The canonical form between the formats, for the tests of round trips."""

from __future__ import annotations

from tests.support.seams import names
from tollhouse.accounting.types import Charge, Cost, CostState, Usage
from tollhouse.inference.formats.canonical import CanonicalRequest
from tollhouse.inference.formats.chat_replies import CHAT_CLIENT, CHAT_PROVIDER
from tollhouse.inference.formats.messages_replies import MESSAGES_CLIENT, MESSAGES_PROVIDER
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.formats.responses import RESPONSES_CLIENT, RESPONSES_PROVIDER
from tollhouse.inference.formats.translation import TranslationSource

__getattr__ = names(
    "tollhouse.inference",
    {
        "formats.sequencing": "ResponseBuilder",
        "formats.canonical": (
            "ANTHROPIC Block BlockEnded CanonicalEvent CanonicalResponse Choice ChoiceFinished "
            "OPENAI ReasoningBlock ReasoningDelta ReasoningSignature RefusalBlock RefusalDelta "
            "StreamStarted TextBlock TextDelta ToolCall ToolCallDelta ToolCallStarted "
            "UsageReported unpack"
        ),
        "sse": "EventParser",
    },
)
CLIENTS = {"chat": CHAT_CLIENT, "responses": RESPONSES_CLIENT, "messages": MESSAGES_CLIENT}
PROVIDERS = {"chat": CHAT_PROVIDER, "responses": RESPONSES_PROVIDER, "messages": MESSAGES_PROVIDER}
_PATHS = {"chat": "/chat/completions", "responses": "/responses", "messages": "/messages"}


def source_of(client: str, body: bytes) -> TranslationSource:
    """Return what a reply to a client's request is rendered from."""
    source = _unread(client, body)
    source.read(body)
    return source


def prompt_of(client: str, body: bytes) -> CanonicalRequest:
    """Return a client's request in canonical form."""
    return _unread(client, body).read(body)


def _unread(client: str, body: bytes) -> TranslationSource:
    return TranslationSource(FORMATS[_PATHS[client]].parse_body(body), CLIENTS[client])


def charge_of(usage: Usage) -> Charge:
    """Return a charge for a usage; what it costs does not matter."""
    return Charge(CostState.EXACT, usage, 9, 9, Cost(9, 4, 5))
