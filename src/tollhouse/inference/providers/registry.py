"""From settings to providers: one line for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tollhouse.inference.providers.openai_compatible.provider import OpenAICompatibleProvider
from tollhouse.inference.providers.simulated.models import SLUG as SIMULATED
from tollhouse.inference.providers.simulated.provider import NAME as SIMULATED_NAME
from tollhouse.inference.providers.simulated.provider import SimulatedProvider
from tollhouse.inference.providers.unavailable import UnavailableProvider
from tollhouse.inference.upstream.port import TimeLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tollhouse.inference.providers.base import Provider
    from tollhouse.inference.upstream.port import Upstream
    from tollhouse.settings.sections import ProviderSettings, UpstreamSettings


class UpstreamFactory(Protocol):
    """Makes the transport of a provider."""

    def __call__(self, settings: ProviderSettings, /) -> Upstream:
        """Return a transport that reaches the provider as its settings say."""
        ...


def build_providers(
    providers: Sequence[ProviderSettings], limits: UpstreamSettings, upstream: UpstreamFactory
) -> Mapping[str, Provider]:
    """Return the configured providers by slug; the simulated one where there is none."""
    if not providers:
        return {SIMULATED: SimulatedProvider(SIMULATED_NAME, "cancel")}
    return {each.slug: _BY_KIND[each.kind](each, limits, upstream) for each in providers}


def _openai_compatible(
    settings: ProviderSettings, limits: UpstreamSettings, upstream: UpstreamFactory
) -> Provider:
    return OpenAICompatibleProvider(
        name=settings.name,
        base_url=settings.base_url or "",
        api_key=settings.api_key,
        extra_headers=[(name, value.reveal()) for name, value in settings.headers.items()],
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
    settings: ProviderSettings, limits: UpstreamSettings, upstream: UpstreamFactory
) -> Provider:
    del limits, upstream
    return SimulatedProvider(settings.name, settings.on_disconnect)


def _anthropic(
    settings: ProviderSettings, limits: UpstreamSettings, upstream: UpstreamFactory
) -> Provider:
    del limits, upstream
    return UnavailableProvider(
        settings.name, f"{settings.name}: this version cannot call Anthropic's API yet."
    )


_BY_KIND: Mapping[
    str, Callable[[ProviderSettings, UpstreamSettings, UpstreamFactory], Provider]
] = {
    "openai_compatible": _openai_compatible,
    "anthropic": _anthropic,
    "simulated": _simulated,
}
