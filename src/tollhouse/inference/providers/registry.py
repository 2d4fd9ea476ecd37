"""From settings to providers: one line for each kind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.formats.messages.errors import parse_error
from tollhouse.inference.providers.http import HttpProvider
from tollhouse.inference.providers.profiles import server_of
from tollhouse.inference.providers.simulated.provider import SimulatedProvider
from tollhouse.inference.types import Dialect
from tollhouse.inference.upstream.port import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tollhouse.inference.providers.base import Provider
    from tollhouse.inference.providers.http import ReadError
    from tollhouse.inference.steps import Steps
    from tollhouse.inference.upstream.port import Upstream
    from tollhouse.settings.sections import ProviderSettings, UpstreamSettings

ANTHROPIC_VERSION: Final = "2023-06-01"
"""Source: https://docs.anthropic.com/en/api/versioning"""


class UpstreamFactory(Protocol):
    """Makes the transport of a provider."""

    def __call__(self, settings: ProviderSettings, /) -> Upstream:
        """Return a transport that reaches the provider as its settings say."""
        ...


def build_providers(
    providers: Sequence[ProviderSettings],
    limits: UpstreamSettings,
    upstream: UpstreamFactory,
    steps: Steps | None = None,
) -> Mapping[str, Provider]:
    """Return the configured providers by slug.

    Args:
        providers: The settings of each.
        limits: How long each part of a call may take.
        upstream: Makes what reaches a provider.
        steps: What reads large requests to the simulated one.
    """
    by_kind = {**_BY_KIND, "simulated": partial(_simulated, steps)}
    return {each.slug: by_kind[each.kind](each, limits, upstream) for each in providers}


def _openai_compatible(
    settings: ProviderSettings, limits: UpstreamSettings, upstream: UpstreamFactory
) -> Provider:
    key = settings.api_key
    return _http(
        settings,
        limits,
        upstream,
        dialects=server_of(settings).dialects,
        credentials=() if key is None else (("authorization", f"Bearer {key.reveal()}"),),
        read_error=parse_error_event,
    )


def _anthropic(
    settings: ProviderSettings, limits: UpstreamSettings, upstream: UpstreamFactory
) -> Provider:
    key = settings.api_key
    return _http(
        settings,
        limits,
        upstream,
        dialects=frozenset({Dialect.MESSAGES, Dialect.COUNT_TOKENS}),
        credentials=(
            ("anthropic-version", ANTHROPIC_VERSION),
            *(() if key is None else (("x-api-key", key.reveal()),)),
        ),
        read_error=parse_error,
    )


def _http(  # noqa: PLR0913 - what differs between two kinds
    settings: ProviderSettings,
    limits: UpstreamSettings,
    upstream: UpstreamFactory,
    *,
    dialects: Collection[Dialect],
    credentials: Sequence[tuple[str, str]],
    read_error: ReadError,
) -> HttpProvider:
    further = [(name, value.reveal()) for name, value in settings.headers.items()]
    return HttpProvider(
        slug=settings.slug,
        name=settings.name,
        base_url=settings.base_url or "",
        dialects=dialects,
        headers=(*credentials, *further),
        read_error=read_error,
        upstream=upstream(settings),
        limits=TimeLimits(
            connect=limits.connect_seconds,
            pool=limits.pool_seconds,
            head=settings.head_seconds or limits.head_seconds,
            idle=limits.idle_seconds,
            total=limits.total_seconds,
        ),
        largest_reply=limits.max_response_bytes,
        on_disconnect=settings.on_disconnect,
    )


def _simulated(
    steps: Steps | None,
    settings: ProviderSettings,
    limits: UpstreamSettings,
    upstream: UpstreamFactory,
) -> Provider:
    del limits, upstream
    return SimulatedProvider(settings.name, settings.on_disconnect, steps)


_BY_KIND: Mapping[
    str, Callable[[ProviderSettings, UpstreamSettings, UpstreamFactory], Provider]
] = {
    "openai_compatible": _openai_compatible,
    "anthropic": _anthropic,
}
