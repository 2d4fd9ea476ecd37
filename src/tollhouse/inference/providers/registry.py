"""From settings to providers, and what is known of servers that speak OpenAI's dialects.

A server is known by the host of its address. Of all others nothing is assumed but chat and
embeddings; `dialects`, `refuses` and `output_limit` of a provider's settings say more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from tollhouse.inference.providers.http import HttpProvider
from tollhouse.inference.providers.simulated.provider import SimulatedProvider
from tollhouse.inference.types import Dialect, OutputLimit, Profile
from tollhouse.outbound.http.port import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tollhouse.inference.ports import Provider
    from tollhouse.inference.steps import Steps
    from tollhouse.outbound.http.port import Upstream
    from tollhouse.settings.sections import EndpointSettings, ProviderSettings, UpstreamSettings

ANTHROPIC_VERSION: Final = "2023-06-01"
"""Source: https://docs.anthropic.com/en/api/versioning"""


def build_providers(
    providers: Sequence[ProviderSettings],
    limits: UpstreamSettings,
    upstream: Callable[[ProviderSettings], Upstream],
    steps: Steps | None = None,
) -> Mapping[str, Provider]:
    """Return the configured providers by slug.

    `upstream` returns a transport that reaches a provider as its settings say; `steps` read large
    requests to the simulated one.
    """
    return {
        each.slug: SimulatedProvider(each.name, each.on_disconnect, steps)
        if each.kind == "simulated"
        else _http_provider(each, limits, upstream(each))
        for each in providers
    }


def _http_provider(
    settings: ProviderSettings, limits: UpstreamSettings, upstream: Upstream
) -> HttpProvider:
    key = "" if settings.api_key is None else settings.api_key.reveal()
    headers: list[tuple[str, str]] = []
    if settings.kind == "anthropic":
        dialects = frozenset({Dialect.MESSAGES, Dialect.COUNT_TOKENS})
        headers.append(("anthropic-version", ANTHROPIC_VERSION))
        key_header = "x-api-key", ""
    else:
        dialects = server_of(settings).dialects
        key_header = "authorization", "Bearer "
    if settings.api_key is not None:
        headers.append((key_header[0], f"{key_header[1]}{key}"))
    headers += [(name, value.reveal()) for name, value in settings.headers.items()]
    return HttpProvider(
        slug=settings.slug,
        name=settings.name,
        base_url=settings.base_url or "",
        dialects=dialects,
        headers=headers,
        upstream=upstream,
        limits=TimeLimits(
            connect=limits.connect_seconds,
            pool=limits.pool_seconds,
            head=settings.head_seconds or limits.head_seconds,
            idle=limits.idle_seconds,
            total=limits.total_seconds,
        ),
        largest_reply=limits.max_response_bytes,
        on_disconnect=settings.on_disconnect,
        key_header=key_header,
    )


_USUAL: Final = frozenset({Dialect.CHAT, Dialect.EMBEDDINGS})
_GATEWAYS_OWN: Final = frozenset(
    {"reasoning", "include_reasoning", "top_k", "min_p", "top_a", "repetition_penalty"}
)
"""Fields of the public gateway that are not OpenAI's: strict servers refuse them."""


@dataclass(frozen=True, slots=True)
class KnownServer:
    """What is known of a server."""

    dialects: frozenset[Dialect] = _USUAL
    profile: Profile = field(default_factory=Profile)
    search_prices: Mapping[str, Decimal] = field(default_factory=dict[str, Decimal])
    """What it takes for searches of its own, in credits (= USD), by the names of `Rates`."""


_WEB_SEARCH: Final = {"web_search": Decimal("0.01")}
_SERVERS: Final[Mapping[str, KnownServer]] = {
    # https://platform.openai.com/docs/api-reference/chat/create: max_tokens is deprecated, and
    # refused by models that reason.
    "api.openai.com": KnownServer(
        dialects=_USUAL | {Dialect.RESPONSES},
        search_prices={**_WEB_SEARCH, "file_search": Decimal("0.0025")},
        profile=Profile(
            refuses_in_chat=_GATEWAYS_OWN | {"max_tokens"},
            refuses_reasoning=True,
            output_limit="max_completion_tokens",
        ),
    ),
    # https://console.groq.com/docs/openai, "currently unsupported OpenAI features"
    "api.groq.com": KnownServer(
        profile=Profile(
            refuses_in_chat=_GATEWAYS_OWN
            | {"logprobs", "top_logprobs", "logit_bias", "max_tokens"},
            refuses_reasoning=True,
            output_limit="max_completion_tokens",
        )
    ),
    # https://docs.mistral.ai/api/: unknown fields are refused, streams end with their usage.
    "api.mistral.ai": KnownServer(
        profile=Profile(
            usage_in_streams=False,
            refuses_reasoning=True,
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


_OTHER_LIMIT: Final[Mapping[OutputLimit, OutputLimit]] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


def _known(settings: ProviderSettings) -> KnownServer:
    return _SERVERS.get(urlsplit(settings.base_url or "").hostname or "", KnownServer())


def server_of(settings: ProviderSettings, model: EndpointSettings | None = None) -> KnownServer:
    """Return what is known of a provider's server, with what its settings say.

    What the settings say of a model counts for more, and a name of the output limit for more than
    that it is refused.
    """
    known = _known(settings)
    profile = known.profile
    refuses = profile.refuses | set(settings.refuses)
    limit, in_chat = settings.output_limit, profile.refuses_in_chat
    if model is not None:
        refuses |= set(model.refuses)
        limit = model.output_limit or limit
    if limit is not None:
        refuses -= {limit}
        in_chat = (in_chat - {limit}) | {_OTHER_LIMIT[limit]}
    elif profile.output_limit in refuses:
        limit = _OTHER_LIMIT[profile.output_limit]
    profile = replace(
        profile,
        refuses=refuses,
        refuses_in_chat=in_chat,
        output_limit=limit or profile.output_limit,
    )
    dialects = dialects_named(settings.dialects) or known.dialects
    return replace(known, dialects=dialects, profile=profile)


def search_prices_of(settings: ProviderSettings) -> Mapping[str, Decimal]:
    """Return what a provider is known to take for searches of the web and of files it keeps.

    Source: https://docs.anthropic.com/en/docs/about-claude/pricing, "web search tool": 10 dollars
    for 1,000 searches; https://platform.openai.com/docs/pricing, "built-in tools": the same, and
    2.50 dollars for 1,000 searches of files.
    """
    return _WEB_SEARCH if settings.kind == "anthropic" else _known(settings).search_prices


def dialects_named(names: Iterable[str]) -> frozenset[Dialect]:
    """Return the dialects that settings name, such as `chat`."""
    return frozenset(Dialect[name.upper()] for name in names)
