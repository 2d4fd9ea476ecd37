"""The gateway, put together: the data plane, the control plane, and the front before both."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tollhouse import __version__
from tollhouse.accounting import endpoints as accounting_endpoints
from tollhouse.accounting.account_loader import DatabaseAccountLoader
from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.ledger.sample import LedgerSampler
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.postgresql import PostgresqlChargeWriter
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.settlement.sqlite import SqliteChargeWriter
from tollhouse.api.audit import audit_router
from tollhouse.api.control import control_app
from tollhouse.api.docs import docs_files
from tollhouse.api.estimate import Estimate
from tollhouse.api.front import Front, Routes
from tollhouse.api.hot_routes import CountTokens, Inference, LargeBodies
from tollhouse.api.openapi import render_openapi
from tollhouse.api.operations import HOT_OPERATIONS
from tollhouse.api.readiness import Readiness, Recovery
from tollhouse.api.system import SystemRoutes
from tollhouse.apps.batching import build_batching, open_blobs
from tollhouse.apps.egressing import build_egressing
from tollhouse.apps.interning import build_interning
from tollhouse.apps.vaulting import build_vaulting
from tollhouse.batches import endpoints as batch_endpoints
from tollhouse.identity import endpoints as identity_endpoints
from tollhouse.inference import endpoints as inference_endpoints
from tollhouse.inference.dry_run import DryRun
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.generation import Services
from tollhouse.inference.guardrails.registry import build_guardrails
from tollhouse.inference.health import Health
from tollhouse.inference.pipeline import Pipeline
from tollhouse.inference.providers.registry import build_providers
from tollhouse.inference.steps import Steps
from tollhouse.inference.token_count import TokenCounter
from tollhouse.inference.upstream.client import HttpUpstream
from tollhouse.inference.workers.pool import WorkerPool
from tollhouse.interns import endpoints as intern_endpoints
from tollhouse.observability.invariants import Invariants
from tollhouse.observability.metrics import Metrics
from tollhouse.vault import endpoints as vault_endpoints

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.ports import ChargeWriter
    from tollhouse.api.hot_routes import HotRoute
    from tollhouse.apps.batching import Batching
    from tollhouse.apps.core import Core
    from tollhouse.apps.egressing import Egressing
    from tollhouse.apps.interning import Interning
    from tollhouse.apps.vaulting import Vaulting
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.guardrails.gate import Guardrails
    from tollhouse.inference.providers.base import Provider
    from tollhouse.inference.upstream.port import Upstream
    from tollhouse.settings.sections import ProviderSettings, Settings
    from tollhouse.storage.data_folder import DataFolder
    from tollhouse.vault.keys.base import KeyEncryption

COUNT_TOKENS: Final = "/messages/count_tokens"
MODELS: Final = "/models"


@dataclass(frozen=True, slots=True)
class Gateway:
    """Everything that runs, and how it ends."""

    public: Front
    """For the network: callers come with keys."""
    local: Front
    """For the control socket: the caller is the operator."""
    pipeline: Pipeline
    batching: Batching
    vaulting: Vaulting
    egressing: Egressing | None
    """None where it serves a single command."""
    interning: Interning
    settler: Settler
    providers: Mapping[str, Provider]
    guardrails: Guardrails
    steps: Steps
    core: Core
    readiness: Readiness
    recovery: Recovery
    """Whoever serves begins and finishes it."""
    invariants: Invariants
    """Whoever serves starts them."""

    async def close(self) -> None:
        """Settle what is pending and give everything up."""
        await self.invariants.stop()
        await self.interning.stop()
        if self.egressing is not None:
            await self.egressing.stop()
        await self.settler.close()
        for provider in self.providers.values():
            await provider.close()
        await self.guardrails.close()
        await self.steps.close()
        await self.core.database.close()


def build_gateway(  # noqa: PLR0913 - the composition roots build it once
    settings: Settings,
    core: Core,
    catalog: Catalog,
    folder: DataFolder,
    keys: KeyEncryption,
    *,
    address: tuple[str, int] | None = None,
) -> Gateway:
    """Return the gateway on a database whose schema is there; must run inside the event loop.

    Args:
        settings: What to run.
        core: The database and the services above it.
        catalog: The models.
        folder: The data folder.
        keys: The key-encryption keys.
        address: Where it listens; None where it serves a single command, without an egress proxy.
    """
    metrics = Metrics()
    settler = Settler(
        Journal(folder.journal),
        _charge_writer(core, folder),
        sync=settings.accounting.journal_sync == "always",
    )
    steps = Steps(WorkerPool(settings.server.large_body_workers))
    providers = build_providers(
        settings.providers, settings.upstream, partial(open_upstream, settings), steps
    )
    health = Health(settings.upstream.cool_down_seconds)
    admission = _admission(core, settler)
    places = settings.upstream.connections_per_host
    guardrails = build_guardrails(
        settings.guardrails, partial(HttpUpstream, connections_per_host=places), metrics
    )
    services = Services(
        providers, admission, settler, core.clock, metrics, guardrails, health, core.rules, steps
    )
    pipeline = Pipeline(catalog, services, core.ids)
    blobs = open_blobs(settings.blobs, folder, core.ids)
    batching = build_batching(
        settings.batches,
        core,
        catalog,
        services,
        blobs,
        largest_request=settings.server.body_limit_bytes,
        is_busy=lambda: pipeline.running > 0,
        settled=settler.settled,
    )
    vaulting = build_vaulting(settings.vault, core, keys)
    egressing = None
    if address is not None:
        routes_out = [*FORMATS, COUNT_TOKENS, MODELS]
        egressing = build_egressing(settings, vaulting, folder, address, routes_out)
    interning = build_interning(settings.interns, core, vaulting, egressing, folder, blobs, metrics)
    metrics.in_flight.set_function(lambda: pipeline.running + batching.asker.pipeline.running)
    readiness = Readiness(core.database)
    control = control_app(
        identity_endpoints.router(core.identity, core.database),
        accounting_endpoints.router(
            core.accounting,
            core.identity,
            core.database,
            core.clock,
            ledger=core.ledger,
            settled=settler.settled,
        ),
        inference_endpoints.router(
            catalog, {slug: provider.name for slug, provider in providers.items()}
        ),
        batch_endpoints.router(
            batching.service,
            core.database,
            batching.blobs,
            largest_body=settings.batches.body_limit_bytes,
            settled=settler.settled,
        ),
        vault_endpoints.router(
            vaulting.service,
            vaulting.upkeep,
            core.identity,
            core.database,
            programs=None if egressing is None else egressing.programs,
        ),
        intern_endpoints.router(interning.service, interning.chats, core.database),
        audit_router(vaulting.audit, core.identity, core.database),
    )
    large = LargeBodies.of(settings.server, steps)
    hot: dict[str, HotRoute] = {
        path: Inference(spoken, pipeline, core.clock, settings.server, large)
        for path, spoken in FORMATS.items()
    }
    counter = TokenCounter(catalog, providers)
    hot[COUNT_TOKENS] = CountTokens(counter, guardrails, settings.server, large)
    dry_run = DryRun(catalog, services, admission)
    hot["/estimate"] = Estimate(
        dry_run, core.clock, settings.server, settings.limits.limit_source_prefix, large
    )
    recovery = Recovery()
    routes = Routes(
        hot=hot,
        control=control,
        system=SystemRoutes(
            version=__version__,
            openapi=partial(render_openapi, control, HOT_OPERATIONS),
            docs=docs_files(),
            readiness=readiness,
            metrics=metrics,
            authenticator=core.authenticator,
        ),
        doors=interning.doors,
        recovery=recovery,
    )

    def front(*, local: bool) -> Front:
        return Front(routes, core.authenticator, settings.server, core.clock, metrics, local=local)

    return Gateway(
        public=front(local=False),
        local=front(local=True),
        pipeline=pipeline,
        batching=batching,
        vaulting=vaulting,
        egressing=egressing,
        interning=interning,
        settler=settler,
        providers=providers,
        guardrails=guardrails,
        steps=steps,
        core=core,
        readiness=readiness,
        recovery=recovery,
        invariants=Invariants(
            {"ledger": partial(_ledger_differences, LedgerSampler(core.ledger, core.database))},
            metrics,
            settings.accounting.verify_seconds,
        ),
    )


def _admission(core: Core, settler: Settler) -> AdmissionController:
    """Return what admits requests; it hears of every charge and of every change."""
    loader = DatabaseAccountLoader(core.database, core.identity, core.clock, settler.between_groups)
    admission = AdmissionController(
        core.rules,
        loader,
        core.clock,
        reserve_capacity=settler.reserve_capacity,
        max_age_seconds=core.max_age_seconds,
    )
    settler.observer = admission
    core.changes.heard_by = admission.invalidate
    core.changes.hinted_to = admission.refresh
    return admission


async def _ledger_differences(sample: LedgerSampler) -> list[dict[str, object]]:
    return [asdict(difference) for difference in await sample.differences()]


def _charge_writer(core: Core, folder: DataFolder) -> ChargeWriter:
    if core.database.dialect == "postgresql":
        return PostgresqlChargeWriter(core.database.url)
    path = core.database.url.database
    return SqliteChargeWriter(
        folder.database if path is None else type(folder.path)(path), core.database.write_lock
    )


def open_upstream(settings: Settings, provider: ProviderSettings) -> Upstream:
    """Return the client that calls a provider, through its proxy where it has one."""
    return HttpUpstream(
        connections_per_host=settings.upstream.connections_per_host,
        proxy=None if provider.proxy is None else provider.proxy.reveal(),
    )
