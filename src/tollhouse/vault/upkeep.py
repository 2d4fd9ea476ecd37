"""What an operator does with vaults: checking and changing key-encryption keys, taking old rows in.

    rotate      new key ──> each vault's data key is wrapped with it ──> the old key is forgotten

Nothing stops meanwhile: data keys stay what they are, and both keys open until the end. What was
interrupted is done again from the beginning, which changes nothing that was done. A vault that is
made meanwhile is stored under the current key or not at all: the old one is about to be forgotten.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tollhouse.audit.types import INSTALLATION, AuditAction, AuditEntry
from tollhouse.kernel.errors import Invalid, NotFound
from tollhouse.vault import repository
from tollhouse.vault.envelope import Unopenable, seal
from tollhouse.vault.keys.base import KeysUnavailable, WrongKey
from tollhouse.vault.types import StoredSecret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.identity.types import Workspace
    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.transaction import Read
    from tollhouse.vault.context import Context
    from tollhouse.vault.keys.base import KeyEncryption
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.types import Vault

_AT_ONCE: Final = 100
_log = structlog.get_logger(__name__)


class Unbound(NamedTuple):
    """A secret of an older store, bound to no host."""

    name: str
    value: Secret


@dataclass(frozen=True, slots=True)
class Rotated:
    """What a rotation did."""

    kek_id: str
    """The key that wraps from now on."""
    vaults: int
    """How many data keys were wrapped anew."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import."""

    imported: Sequence[str]
    kept: Sequence[str]
    """Names that a secret with hosts has already."""


async def has_vaults(read: Read) -> bool:
    """Tell whether anything was ever sealed."""
    return bool(await repository.kek_ids(read))


async def check_keys(read: Read, keys: KeyEncryption) -> None:
    """Make sure that the vaults' keys can be opened; before anything is served.

    Raises:
        WrongKey: A key that vaults are wrapped with is not there, or is another one.
    """
    for kek_id in sorted(await repository.kek_ids(read)):
        vault = await repository.some_vault_of(read, kek_id)
        if vault is None:
            continue
        if not keys.knows(kek_id):
            message = (
                f"vaults are sealed with the key-encryption key {kek_id}, which is not there "
                f"(there is {keys.current_id}): put it back, or name it in vault.previous_keys"
            )
            raise WrongKey(message)
        try:
            await keys.unwrap(vault.key, vault.id)
        except Unopenable:
            message = f"the key-encryption key {kek_id} does not open the vaults sealed with it"
            raise WrongKey(message) from None
        except KeysUnavailable as error:
            # It may come back, and until then what needs it is refused.
            _log.warning("vault_keys_unavailable", kek_id=kek_id, reason=error.reason)


class Upkeep:
    """What an operator does with vaults."""

    def __init__(self, context: Context, service: VaultService) -> None:
        """Take what it needs."""
        self._context = context
        self._database = context.database
        self._keys = context.keyring.keys
        self._service = service
        self._one_rotation = asyncio.Lock()

    async def rotate(self, actor: str) -> Rotated:
        """Wrap every vault's data key with a new key, and forget the old one.

        Raises:
            KeysUnavailable: A key cannot be used or stored now; begin again later.
            Unopenable: A vault's key does not open.
        """
        async with self._one_rotation:
            if await self._needs_a_new_key():
                await self._keys.renew()
            done = await self._rewrap_all()
            await self._retire(actor)
            return Rotated(self._keys.current_id, done)

    async def import_unbound(
        self, workspace: Workspace, secrets: Sequence[Unbound], actor: str
    ) -> Imported:
        """Take secrets without hosts into a workspace's vault.

        A name that has a secret with hosts keeps that; one that has none gets the new value.

        Args:
            workspace: Whose they become.
            secrets: Each name once.
            actor: Who does it.

        Raises:
            Invalid: A name comes twice.
            Unavailable: The vault's key cannot be used now.
        """
        names = [each.name for each in secrets]
        if len(set(names)) < len(names):
            message = "secrets: a name comes twice."
            raise Invalid(message)
        vault = await self._vault_of(workspace)
        key = await self._context.keyring.key(vault)
        imported: list[StoredSecret] = []
        async with self._database.writing() as write:
            if not await repository.hold(write, vault.id):
                message = "The workspace was deleted in this moment."
                raise NotFound(message)
            before = await repository.secrets_named(write, vault.id, names)
            for each in secrets:
                old = before.get(each.name)
                if old is None or old.is_legacy:
                    imported.append(self._unbound(vault, key, each, old))
                    await repository.put(write, imported[-1])
            entries = [_imported(secret, workspace.id, actor) for secret in imported]
            await self._context.audit.record(write, workspace.account_id, entries)
            write.after_commit(partial(self._context.changed, vault.id))
        taken = [secret.name for secret in imported]
        return Imported(taken, [name for name in names if name not in taken])

    async def _needs_a_new_key(self) -> bool:
        """Tell whether the last rotation did not stop right after it made one."""
        async with self._database.reading() as read:
            in_use = await repository.kek_ids(read)
        return not in_use or self._keys.current_id in in_use

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

    async def _vault_of(self, workspace: Workspace) -> Vault:
        async with self._database.reading() as read:
            found = await repository.workspace_vault(read, workspace.id)
        if found is not None:
            return found
        return await self._service.make_vault(workspace.account_id, workspace.id)

    def _unbound(
        self, vault: Vault, key: bytes, new: Unbound, old: StoredSecret | None
    ) -> StoredSecret:
        version = 1 if old is None else old.version + 1
        now = self._context.clock.now()
        return StoredSecret(
            vault_id=vault.id,
            name=new.name,
            version=version,
            hosts=None,
            fingerprint=None,
            created_at=now if old is None else old.created_at,
            updated_at=now,
            sealed=seal(key, new.value, vault.id, new.name, version),
        )


def _imported(secret: StoredSecret, workspace_id: str, actor: str) -> AuditEntry:
    return AuditEntry(
        AuditAction.SECRET_IMPORTED,
        actor,
        workspace_id,
        vault_id=secret.vault_id,
        name=secret.name,
        version=secret.version,
    )
