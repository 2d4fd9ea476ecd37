"""The control plane: batches, interns, and every route but the hot ones.

Its web framework and models take longer to load than all that answers inference, so a server
imports this once its port answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tollhouse.accounting import endpoints as accounting_endpoints
from tollhouse.api.audit import audit_router
from tollhouse.api.control import control_app
from tollhouse.api.openapi import render_openapi
from tollhouse.api.system import ControlPlane
from tollhouse.apps.batches import BatchComponents, build_batches
from tollhouse.apps.interns import InternComponents, build_interns
from tollhouse.batches import endpoints as batch_endpoints
from tollhouse.identity import endpoints as identity_endpoints
from tollhouse.inference import endpoints as inference_endpoints
from tollhouse.interns import endpoints as intern_endpoints
from tollhouse.provider_keys import endpoints as provider_key_endpoints
from tollhouse.vault import endpoints as vault_endpoints

if TYPE_CHECKING:
    from tollhouse.apps.gateway import Gateway
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.blobs import Blobs


@dataclass(frozen=True, slots=True)
class ControlComponents:
    """The components behind the control plane, from the lowest to the highest."""

    batches: BatchComponents
    interns: InternComponents


def build_control(settings: Settings, gateway: Gateway, blobs: Blobs) -> ControlComponents:
    """Add the components of the control plane to a gateway; must run inside the event loop."""
    core, folder, inference = gateway.core, gateway.folder, gateway.inference
    batches = build_batches(
        settings.batches,
        core,
        gateway.catalog,
        inference.services,
        blobs,
        largest_request=settings.server.body_limit_bytes,
        is_busy=lambda: inference.pipeline.running > 0,
        settled=gateway.accounting.settler.settled,
        reload=gateway.accounting.admission.reload,
        reserve=gateway.accounting.admission.reserve,
    )
    gateway.metrics.in_flight.set_function(
        lambda: inference.pipeline.running + batches.client.pipeline.running
    )
    interns = build_interns(
        settings.interns,
        core,
        gateway.vault.service,
        gateway.vault.egress,
        folder,
        blobs,
        gateway.metrics,
        gateway.port_forwarder,
    )
    gateway.components.extend((batches, interns))
    return ControlComponents(batches, interns)


def build_control_plane(
    settings: Settings, gateway: Gateway, components: ControlComponents
) -> ControlPlane:
    """Return the routes of the control plane; may run in a thread, and takes a while."""
    core, settled = gateway.core, gateway.accounting.settler.settled
    providers = gateway.inference.services.providers
    batches, vault, interns = components.batches, gateway.vault, components.interns
    app = control_app(
        identity_endpoints.router(core.identity, core.database),
        accounting_endpoints.router(
            core.accounting,
            core.identity,
            core.database,
            core.clock,
            ledger=core.ledger,
            settled=settled,
        ),
        inference_endpoints.router(
            gateway.catalog, {slug: provider.name for slug, provider in providers.items()}
        ),
        batch_endpoints.router(
            batches.service,
            core.database,
            batches.blobs,
            largest_body=settings.batches.body_limit_bytes,
            settled=settled,
        ),
        vault_endpoints.router(
            vault.service, vault.maintenance, core.identity, core.database, programs=vault.programs
        ),
        provider_key_endpoints.router(gateway.provider_keys.service),
        intern_endpoints.router(
            interns.service,
            interns.chats,
            interns.invocations,
            interns.channels,
            core.database,
        ),
        audit_router(core.audit, core.identity, core.database),
    )
    return ControlPlane(app, partial(render_openapi, app))
