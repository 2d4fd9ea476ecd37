"""The vault over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from tollhouse.vault.endpoints.egress import EgressSessions
from tollhouse.vault.endpoints.secrets import Secrets
from tollhouse.vault.endpoints.upkeep import VaultUpkeep

if TYPE_CHECKING:
    from tollhouse.identity.service import IdentityService
    from tollhouse.storage.database import Database
    from tollhouse.vault.egress.programs import Programs
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.upkeep import Upkeep


def router(
    service: VaultService,
    upkeep: Upkeep,
    identity: IdentityService,
    database: Database,
    *,
    programs: Programs | None = None,
) -> APIRouter:
    """Return the routes of the vault; those of the proxy's sessions work in a server alone."""
    routes = APIRouter()
    Secrets(service, database).add_to(routes)
    VaultUpkeep(upkeep, identity, database).add_to(routes)
    EgressSessions(programs, identity, database).add_to(routes)
    return routes
