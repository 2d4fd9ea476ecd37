"""What an operator does with vaults: checking and changing key-encryption keys, taking old rows in.

    rotate      new key ──> each vault's data key is wrapped with it ──> the old key is forgotten

Nothing stops meanwhile: data keys stay what they are, and both keys open until the end. What was
interrupted is done again from the beginning, which changes nothing that was done. A vault that is
made meanwhile is stored under the current key or not at all: the old one is about to be forgotten.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from tollhouse.audit.types import INSTALLATION, AuditAction, AuditEntry
from tollhouse.identity.types import Workspace
from tollhouse.kernel.errors import Invalid, NotFound
from tollhouse.kernel.secret import Secret
from tollhouse.storage.database import Read
from tollhouse.storage.notifications import Topic
from tollhouse.vault import repository
from tollhouse.vault.envelope import Unopenable
from tollhouse.vault.key_encryption import KeyEncryption, KeysUnavailable, WrongKey
from tollhouse.vault.service import VaultContext, VaultService, sealed_secret
from tollhouse.vault.types import StoredSecret, Vault

_AT_ONCE: Final = 100
_log = structlog.get_logger(__name__)


class ImportedSecret(NamedTuple):
    """A secret of an older store, bound to no host."""

    name: str
    value: Secret


async def has_vaults(read: Read) -> bool:
    """Tell whether there is any vault."""
    return bool(await repository.kek_ids(read))


async def check_keys(read: Read, keys: KeyEncryption) -> None:
    """Make sure that the vaults' keys can be opened; before anything is served.

    Raises `WrongKey` where a key that vaults are wrapped with is not there, or is another one.
    """
    for kek_id in sorted(await repository.kek_ids(read)):
        vault = await repository.some_vault_of(read, kek_id)
        if vault is None:
            continue
        if not keys.knows(kek_id):
            raise WrongKey(
                f"vaults are sealed with the key-encryption key {kek_id}, which is not there "
                f"(there is {keys.current_id}): put it back, or name it in vault.previous_keys"
            )
        try:
            await keys.unwrap(vault.key, vault.id)
        except Unopenable:
            message = f"the key-encryption key {kek_id} does not open the vaults sealed with it"
            raise WrongKey(message) from None
        except KeysUnavailable as error:
            # It may come back, and until then what needs it is refused.
            _log.warning("vault_keys_unavailable", kek_id=kek_id, reason=error.reason)


class VaultMaintenance:
    """Rotates key-encryption keys, and imports secrets."""

    def __init__(self, context: VaultContext, service: VaultService) -> None:
        self._context = context
        self._database = context.database
        self._keys = context.keyring.keys
        self._service = service
        self._one_rotation = asyncio.Lock()

    async def rotate(self, actor: str) -> tuple[str, int]:
        """Wrap every vault's data key with a new key, and forget the old one.

        Returns the id of the key that wraps from now on, and how many data keys were wrapped anew.
        Raises `KeysUnavailable` where a key cannot be used or stored now, to begin again later, and
        `Unopenable` where a vault's key does not open.
        """
        async with self._one_rotation:
            async with self._database.reading() as read:
                in_use = await repository.kek_ids(read)
            # Not where the last rotation stopped right after it had made a key.
            if not in_use or self._keys.current_id in in_use:
                await self._keys.renew()
            done = await self._rewrap_all()
            await self._retire(actor)
            return self._keys.current_id, done

    async def import_unbound(
        self, workspace: Workspace, secrets: Sequence[ImportedSecret], actor: str
    ) -> tuple[list[str], list[str]]:
        """Take secrets without hosts into a workspace's vault.

        Returns the names that were taken in, with the new values, and those that a secret with
        hosts keeps. Raises `Invalid` where a name comes twice, and `Unavailable` where the vault's
        key cannot be used now.
        """
        names = [each.name for each in secrets]
        if len(set(names)) < len(names):
            raise Invalid("secrets: a name comes twice.")
        async with self._database.reading() as read:
            vault = await repository.workspace_vault(read, workspace.id)
        if vault is None:
            vault = await self._service.make_vault(workspace.account_id, workspace.id)
        key = await self._context.keyring.key(vault)
        imported: list[StoredSecret] = []
        now = self._context.clock.now()
        async with self._database.writing() as write:
            if not await repository.hold(write, vault.id):
                raise NotFound("The workspace was deleted in this moment.")
            before = await repository.secrets_named(write, vault.id, names)
            for each in secrets:
                old = before.get(each.name)
                if old is None or old.is_legacy:
                    new = sealed_secret(vault.id, key, each.name, each.value, None, old, now)
                    imported.append(new)
                    await repository.put(write, new)
            about = (AuditAction.SECRET_IMPORTED, actor, workspace.id, None, vault.id)
            entries = [AuditEntry(*about, each.name, each.version) for each in imported]
            await self._context.audit.record(write, workspace.account_id, entries)
            write.notify(Topic.VAULT, vault.id)
        taken = [secret.name for secret in imported]
        return taken, [name for name in names if name not in taken]

    async def _rewrap_all(self) -> int:
        done, last = 0, ""
        while True:
            async with self._database.reading() as read:
                vaults = await repository.vaults_after(read, last, _AT_ONCE)
            if not vaults:
                return done
            for vault in vaults:
                await self._rewrap(vault)
            done, last = done + len(vaults), vaults[-1].id

    async def _rewrap(self, vault: Vault) -> None:
        try:
            data_key = await self._keys.unwrap(vault.key, vault.id)
        except Unopenable:
            _log.error("vault_key_not_opened", vault=vault.id, kek_id=vault.key.kek_id)
            raise
        wrapped = await self._keys.wrap(data_key, vault.id)
        async with self._database.writing() as write:
            await repository.rewrap(write, vault, wrapped)

    async def _retire(self, actor: str) -> None:
        async with self._database.writing() as write:
            await repository.no_new_vaults(write)
            in_use = await repository.kek_ids(write)
            entry = AuditEntry(AuditAction.KEY_ROTATED, actor, name=self._keys.current_id)
            await self._context.audit.record(write, INSTALLATION, [entry])
        await self._keys.retire(in_use)
