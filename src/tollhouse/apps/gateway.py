"""The gateway: what answers inference, and the ASGI applications that every request passes first.

The vault is a part of it: a start ends the sessions of a killed server before it answers anybody.

It answers without the control plane, which `apps.control` builds and puts into its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tollhouse import __version__
from tollhouse.api.docs import docs_files
from tollhouse.api.estimate import Estimate
from tollhouse.api.hot_routes import COUNT_TOKENS, CountTokens, HotRoute, Inference, LargeBodies
from tollhouse.api.request_gate import RequestGate, Routes
from tollhouse.api.system import LateControlPlane, Readiness, Recovery, SystemRoutes
from tollhouse.apps.accounting import AccountingComponents, build_accounting
from tollhouse.apps.inference import InferenceComponents, build_inference
from tollhouse.apps.provider_keys import ProviderKeyComponents, build_provider_keys
from tollhouse.apps.vault import VaultComponents, add_egress, build_vault
from tollhouse.inference.estimate import DryRun
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.token_count import TokenCounter
from tollhouse.interns.sandboxes import PortForwarder
from tollhouse.observability.metrics import Metrics

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.inference.catalog import Catalog
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.data_folder import DataFolder
    from tollhouse.vault.key_encryption import KeyEncryption


class Components(Protocol):
    """What a slice runs."""

    async def start(self) -> None:
        """Recover what a killed server left of the slice, then begin its work.

        Raises:
            StartError: Something that it needs cannot be used.
        """
        ...

    async def stop(self, seconds: float) -> None:
        """End its work, whether or not it began; what is under way has so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Gateway:
    """What answers inference, and the components of every slice that is built."""

    core: Core
    metrics: Metrics
    catalog: Catalog
    folder: DataFolder
    accounting: AccountingComponents
    inference: InferenceComponents
    vault: VaultComponents
    provider_keys: ProviderKeyComponents
    port_forwarder: PortForwarder
    """To the daemons of interns that run here."""
    readiness: Readiness
    recovery: Recovery
    """Begun and finished by what starts the components."""
    control: LateControlPlane
    components: list[Components]
    """From the lowest to the highest; each may use those before it."""
    _stopped: list[Components] = field(default_factory=list["Components"], init=False)

    async def stop(self, *components: Components, seconds: float = 0.0) -> None:
        """Stop some components, each once, so that all have ended after so many seconds."""
        end = self.core.clock.monotonic() + seconds
        for each in components:
            if not any(each is stopped for stopped in self._stopped):
                self._stopped.append(each)
                await each.stop(max(0.0, end - self.core.clock.monotonic()))

    async def close(self) -> None:
        """Stop all components that were not stopped yet, and close the database."""
        await self.stop(*reversed(self.components))
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

    It listens on an address; None where a single command is served, without an egress proxy.

    Raises:
        StartError: A file of certificates cannot be used.
    """
    metrics = Metrics()
    accounting = build_accounting(settings.accounting, core, folder, metrics)
    vault = build_vault(settings.vault, core, keys)
    provider_keys = build_provider_keys(settings, core, vault.service)
    inference = build_inference(
        settings, core, accounting, catalog, metrics, provider_keys.own_keys
    )
    if address is not None:
        add_egress(vault, settings, folder, address, [*FORMATS, COUNT_TOKENS, "/models"])
    metrics.in_flight.set_function(lambda: inference.pipeline.running)
    control = LateControlPlane()
    return Gateway(
        core,
        metrics,
        catalog,
        folder,
        accounting,
        inference,
        vault,
        provider_keys,
        PortForwarder(),
        Readiness(core.database, control),
        Recovery(),
        control,
        [accounting, provider_keys, inference, vault],
    )


def build_request_gates(settings: Settings, gateway: Gateway) -> tuple[RequestGate, RequestGate]:
    """Return the ASGI applications for the network and for the control socket.

    Callers from the network come with keys; whoever can open the control socket is the operator.
    """
    core = gateway.core
    routes = Routes(
        hot=_hot_routes(settings, gateway),
        control=gateway.control,
        system=SystemRoutes(
            version=__version__,
            openapi=gateway.control.describe,
            docs=docs_files(),
            readiness=gateway.readiness,
            metrics=gateway.metrics,
            authenticator=core.authenticator,
        ),
        doors=gateway.port_forwarder,
        recovery=gateway.recovery,
    )
    front = partial(
        RequestGate, routes, core.authenticator, settings.server, core.clock, gateway.metrics
    )
    return front(local=False), front(local=True)


def _hot_routes(settings: Settings, gateway: Gateway) -> dict[str, HotRoute]:
    """Return the routes without a framework, by their paths below the version segment."""
    core, services = gateway.core, gateway.inference.services
    large = LargeBodies.of(settings.server, services.steps)
    counter = TokenCounter(gateway.catalog, services.providers)
    dry_run = DryRun(gateway.catalog, services)
    source_prefix = settings.limits.limit_source_prefix
    return {
        **{
            path: Inference(format_, gateway.inference.pipeline, core.clock, settings.server, large)
            for path, format_ in FORMATS.items()
        },
        COUNT_TOKENS: CountTokens(
            counter, services.guardrails, settings.server, large, services.own_keys_of
        ),
        "/estimate": Estimate(dry_run, core.clock, settings.server, source_prefix, large),
    }
