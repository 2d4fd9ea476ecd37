"""The vault, put together: its keys, its services, and what other slices are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.audit.service import AuditService
from tollhouse.kernel.start import StartError
from tollhouse.vault.context import Context
from tollhouse.vault.keyring import Keyring
from tollhouse.vault.keys.command import CommandKeys
from tollhouse.vault.keys.local import open_local
from tollhouse.vault.keys.symmetric import NoKey, SymmetricKeys, from_text
from tollhouse.vault.resolutions import Resolutions
from tollhouse.vault.service import VaultService
from tollhouse.vault.upkeep import Upkeep, check_keys, has_vaults

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.settings.stored import VaultSettings
    from tollhouse.storage.data_folder import DataFolder
    from tollhouse.vault.keys.base import KeyEncryption


@dataclass(frozen=True, slots=True)
class Vaulting:
    """Everything of the vault that runs."""

    service: VaultService
    upkeep: Upkeep
    resolutions: Resolutions
    audit: AuditService
    context: Context


async def open_keys(settings: VaultSettings, core: Core, folder: DataFolder) -> KeyEncryption:
    """Return the key-encryption keys that the settings name; they open what there is.

    Raises:
        StartError: They are not there, or they are others; nothing was changed.
    """
    async with core.database.reading() as read:
        keys = _keys(settings, folder, make=not await has_vaults(read))
        await check_keys(read, keys)
    return keys


def build_vaulting(settings: VaultSettings, core: Core, keys: KeyEncryption) -> Vaulting:
    """Return the vault on a database whose schema is there."""
    audit = AuditService(core.clock)
    changed = _Told()
    context = Context(
        database=core.database,
        identity=core.identity,
        audit=audit,
        keyring=Keyring(keys),
        clock=core.clock,
        ids=core.ids,
        changed=changed,
        release_unbound=settings.release_unbound,
    )
    service = VaultService(context)
    resolutions = Resolutions(
        core.database, service, core.clock, max_age_seconds=core.max_age_seconds
    )
    changed.listener = resolutions
    core.departures.heard_by = service.workspace_leaves
    return Vaulting(service, Upkeep(context, service), resolutions, audit, context)


class _Told:
    """Passes on that a vault has changed, to what is built after those who change it."""

    def __init__(self) -> None:
        self.listener: Resolutions | None = None

    def __call__(self, vault_id: str) -> None:
        if self.listener is not None:
            self.listener.forget(vault_id)


def _keys(settings: VaultSettings, folder: DataFolder, *, make: bool) -> KeyEncryption:
    if settings.keys == "command":
        if not settings.command:
            message = "vault.command: name the program that wraps keys"
            raise StartError(message)
        return CommandKeys(settings.command, settings.command_seconds)
    if settings.keys == "settings":
        return SymmetricKeys(_from_settings(settings))
    found = open_local(folder.vault_keys, make=make)
    if found is None:
        message = (
            f"the vault's key file {folder.vault_keys} is not there, and vaults are sealed with "
            "its key: put its copy back"
        )
        raise StartError(message)
    return found


def _from_settings(settings: VaultSettings) -> list[bytes]:
    if settings.key is None:
        message = "vault.key: is needed where vault.keys is settings"
        raise StartError(message)
    named = {"vault.key": settings.key}
    named |= {f"vault.previous_keys[{at}]": key for at, key in enumerate(settings.previous_keys)}
    keys: list[bytes] = []
    for place, key in named.items():
        try:
            keys.append(from_text(key.reveal()))
        except NoKey as error:
            raise StartError(f"{place}: {error}") from None
    return keys
