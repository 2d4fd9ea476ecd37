"""Own keys of providers: the service for their endpoints, and what requests use of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.provider_keys.own_keys import OwnKeys
from tollhouse.provider_keys.service import ProviderKeyContext, ProviderKeyService

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.identity.types import Manager, Workspace
    from tollhouse.settings.sections import Settings
    from tollhouse.storage.database import Write
    from tollhouse.vault.service import VaultService


@dataclass(frozen=True, slots=True)
class ProviderKeyComponents:
    """What keeps own keys, and opens them for requests."""

    service: ProviderKeyService
    own_keys: OwnKeys

    async def start(self) -> None:
        """Do nothing: keys are read when they are needed."""

    async def stop(self, seconds: float) -> None:
        """Wait for what is being written down of them."""
        del seconds
        await self.own_keys.close()


def build_provider_keys(
    settings: Settings, core: Core, vault: VaultService
) -> ProviderKeyComponents:
    """Return own keys on a database whose schema is there."""
    own_keys = OwnKeys(core.database, vault, core.clock)
    providers = frozenset(each.slug for each in settings.providers)
    context = ProviderKeyContext(
        core.database, core.identity, vault, core.clock, core.ids, providers
    )
    service = ProviderKeyService(context)

    async def workspace_leaves(write: Write, workspace: Workspace, who: Manager) -> None:
        await service.workspace_leaves(write, workspace, who)  # before the vault that seals them
        await vault.workspace_leaves(write, workspace, who)

    core.departures.heard_by = workspace_leaves
    return ProviderKeyComponents(service, own_keys)
