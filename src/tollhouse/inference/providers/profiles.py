"""What is known of servers that speak OpenAI's dialects: one entry for each.

A server is known by the host of its address. Of all others nothing is assumed but chat and
embeddings; `dialects` and `refuses` of a provider's settings say more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tollhouse.inference.types import Dialect, Profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.settings.sections import ProviderSettings

_USUAL: Final = frozenset({Dialect.CHAT, Dialect.EMBEDDINGS})
_GATEWAYS_OWN: Final = frozenset(
    {"reasoning", "include_reasoning", "top_k", "min_p", "top_a", "repetition_penalty"}
)
"""Fields of the public gateway that are not OpenAI's: strict servers refuse them."""


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A known server."""

    dialects: frozenset[Dialect] = _USUAL
    profile: Profile = field(default_factory=Profile)


NAMES: Final[Mapping[str, Dialect]] = {
    "chat": Dialect.CHAT,
    "responses": Dialect.RESPONSES,
    "messages": Dialect.MESSAGES,
    "completions": Dialect.COMPLETIONS,
    "embeddings": Dialect.EMBEDDINGS,
}
"""The settings' words for the dialects."""
UNKNOWN: Final = KnownServer()
SERVERS: Final[Mapping[str, KnownServer]] = {
    # https://platform.openai.com/docs/api-reference/chat/create: max_tokens is deprecated, and
    # refused by models that reason.
    "api.openai.com": KnownServer(
        dialects=_USUAL | {Dialect.RESPONSES},
        profile=Profile(
            refuses_in_chat=_GATEWAYS_OWN | {"max_tokens"}, output_limit="max_completion_tokens"
        ),
    ),
    # https://console.groq.com/docs/openai, "currently unsupported OpenAI features"
    "api.groq.com": KnownServer(
        profile=Profile(
            refuses_in_chat=_GATEWAYS_OWN
            | {"logprobs", "top_logprobs", "logit_bias", "max_tokens"},
            output_limit="max_completion_tokens",
        )
    ),
    # https://docs.mistral.ai/api/: unknown fields are refused, streams end with their usage.
    "api.mistral.ai": KnownServer(
        profile=Profile(
            usage_in_streams=False,
            refuses_in_chat=_GATEWAYS_OWN
            | {
                "logit_bias",
                "logprobs",
                "max_completion_tokens",
                "reasoning_effort",
                "seed",
                "service_tier",
                "store",
                "top_logprobs",
                "user",
                "verbosity",
            },
        )
    ),
    # https://api-docs.deepseek.com/guides/thinking_mode: a turn with tool calls is sent back with
    # its reasoning.
    "api.deepseek.com": KnownServer(
        dialects=frozenset({Dialect.CHAT}),
        profile=Profile(refuses_in_chat=_GATEWAYS_OWN, takes_reasoning_as="reasoning_content"),
    ),
    "openrouter.ai": KnownServer(
        dialects=_USUAL | {Dialect.RESPONSES, Dialect.MESSAGES},
        profile=Profile(takes_extensions=True, takes_reasoning_as="reasoning_details"),
    ),
}


def server_of(settings: ProviderSettings) -> KnownServer:
    """Return what is known of a provider's server, with what its settings say."""
    known = SERVERS.get(urlsplit(settings.base_url or "").hostname or "", UNKNOWN)
    said = frozenset(NAMES[name] for name in settings.dialects)
    refuses = known.profile.refuses | set(settings.refuses)
    return KnownServer(said or known.dialects, replace(known.profile, refuses=refuses))
