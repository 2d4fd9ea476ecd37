"""The vault over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from tollhouse.vault.endpoints.secrets import Secrets
from tollhouse.vault.endpoints.upkeep import VaultUpkeep

if TYPE_CHECKING:
    from tollhouse.identity.service import IdentityService
    from tollhouse.storage.database import Database
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.upkeep import Upkeep


def router(
    service: VaultService, upkeep: Upkeep, identity: IdentityService, database: Database
) -> APIRouter:
    """Return the routes of the vault."""
    routes = APIRouter()
    Secrets(service, database).add_to(routes)
    VaultUpkeep(upkeep, identity, database).add_to(routes)
    return routes
