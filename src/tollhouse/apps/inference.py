"""Inference: providers, guardrails, workers, and the pipeline of requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.inference.dependencies import PipelineDependencies
from tollhouse.inference.guardrails import build_guardrails
from tollhouse.inference.pipeline import Pipeline
from tollhouse.inference.providers.registry import build_providers
from tollhouse.inference.routing import Health
from tollhouse.inference.steps import Steps
from tollhouse.inference.workers.pool import WorkerPool
from tollhouse.kernel.errors import ProviderFailure
from tollhouse.outbound.http.client import HttpUpstream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.apps.accounting import AccountingComponents
    from tollhouse.apps.core import Core
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.ports import OwnKeySource, Provider
    from tollhouse.observability.metrics import Metrics
    from tollhouse.outbound.http.port import Upstream
    from tollhouse.settings.sections import ProviderSettings, Settings


@dataclass(frozen=True, slots=True)
class InferenceComponents:
    """What answers inference requests."""

    services: PipelineDependencies
    pipeline: Pipeline

    async def start(self) -> None:
        """Do nothing: providers are connected to, and workers started, when they are needed."""

    async def stop(self, seconds: float) -> None:
        """Let requests under way finish, for so many seconds; then close all connections."""
        await self.pipeline.drain(seconds)
        for provider in self.services.providers.values():
            await provider.close()
        await self.services.guardrails.close()
        await self.services.steps.close()


def build_inference(  # noqa: PLR0913, PLR0917 - each is a part of the gateway
    settings: Settings,
    core: Core,
    accounting: AccountingComponents,
    catalog: Catalog,
    metrics: Metrics,
    own_keys: OwnKeySource,
) -> InferenceComponents:
    """Return inference with the providers of the settings; nothing is asked of them yet."""
    steps = Steps(WorkerPool(settings.server.large_body_workers))
    per_host = settings.upstream.connections_per_host
    services = PipelineDependencies(
        build_providers(
            settings.providers, settings.upstream, partial(open_upstream, settings), steps
        ),
        accounting.admission,
        accounting.settler,
        core.clock,
        metrics,
        build_guardrails(
            settings.guardrails, partial(HttpUpstream, connections_per_host=per_host), metrics
        ),
        Health(settings.upstream.cool_down_seconds),
        core.rules,
        steps,
        own_keys,
        accounting.admission if core.rules.free_own_a_month else None,
    )
    as_tasks = settings.server.inference_driver == "tasks"
    return InferenceComponents(services, Pipeline(catalog, services, core.ids, as_tasks=as_tasks))


def open_upstream(settings: Settings, provider: ProviderSettings) -> Upstream:
    """Return the client that calls a provider, through its proxy where it has one."""
    return HttpUpstream(
        connections_per_host=settings.upstream.connections_per_host,
        proxy=None if provider.proxy is None else provider.proxy.reveal(),
    )


_SECONDS: Final = 15.0
_NO_LIST: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))


class ProviderCheck(NamedTuple):
    """What came of asking a provider."""

    ok: bool
    message: str


async def check_providers(settings: Settings) -> Mapping[str, ProviderCheck]:
    """Ask every provider but simulated ones for its list of models; return what came, by slug."""
    real = [each for each in settings.providers if each.kind != "simulated"]
    providers = build_providers(real, settings.upstream, partial(open_upstream, settings))
    try:
        found = await asyncio.gather(*map(_check, providers.values()))
    finally:
        for provider in providers.values():
            await provider.close()
    return dict(zip(providers, found, strict=True))


async def _check(provider: Provider) -> ProviderCheck:
    try:
        async with asyncio.timeout(_SECONDS):
            await provider.check()
    except ProviderFailure as error:
        if error.provider_status in _NO_LIST:
            return ProviderCheck(ok=True, message="answers, has no list of models: key not tried")
        return ProviderCheck(ok=False, message=error.message)
    except TimeoutError:
        message = f"{provider.name} did not answer in {_SECONDS:.0f} seconds."
        return ProviderCheck(ok=False, message=message)
    return ProviderCheck(ok=True, message="ok")
