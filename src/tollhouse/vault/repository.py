"""The SQL of vaults, their secrets, and whose requests receive them."""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from tollhouse.kernel.pages import Window
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.vault import vault_secrets, vault_subjects, vaults
from tollhouse.vault.types import StoredSecret, Vault, VaultKind, VaultSubject, WrappedKey

_NEW_VAULTS = 0x746F6C76
_COLUMNS = [vault_secrets.c[name] for name in StoredSecret.__slots__]
_SECRETS = sa.select(*_COLUMNS)
"""By places: to look names up costs a third of what 300 rows cost."""

# Vaults


async def no_new_vaults(write: Write) -> None:
    """Let no other transaction store a vault until this one ends."""
    await write.alone(_NEW_VAULTS)


async def add_vault(write: Write, vault: Vault) -> None:
    """Store a new vault, unless its workspace has one already."""
    row = {
        "id": vault.id,
        "account_id": vault.account_id,
        "workspace_id": vault.workspace_id,
        "kind": vault.kind.value,
        "kek_id": vault.key.kek_id,
        "wrapped_key": vault.key.data,
        "created_at": vault.created_at,
    }
    await write.execute(insert(write, vaults).values(**row).on_conflict_do_nothing())


async def workspace_vault(read: Read, workspace_id: str) -> Vault | None:
    """Return a workspace's own vault; None where nothing was ever stored in it."""
    query = sa.select(vaults).where(
        vaults.c.workspace_id == workspace_id, vaults.c.kind == VaultKind.WORKSPACE.value
    )
    return next(iter(await _vaults(read, query)), None)


async def vaults_of(read: Read, vault_ids: Collection[str]) -> Sequence[Vault]:
    """Return those of some vaults that are there."""
    return await _vaults(read, sa.select(vaults).where(vaults.c.id.in_(vault_ids)))


async def vaults_in(read: Read, workspace_id: str) -> Sequence[Vault]:
    """Return every vault of a workspace."""
    query = sa.select(vaults).where(vaults.c.workspace_id == workspace_id)
    return await _vaults(read, query.order_by(vaults.c.id))


async def hold(write: Write, vault_id: str) -> bool:
    """Count a change to a vault, which nobody else changes meanwhile; False where it is gone."""
    counted = sa.update(vaults).where(vaults.c.id == vault_id)
    return (await write.execute(counted.values(changes=vaults.c.changes + 1))).rowcount > 0


async def delete_vault(write: Write, vault_id: str) -> None:
    """Remove a vault and its secrets."""
    await write.execute(sa.delete(vault_secrets).where(vault_secrets.c.vault_id == vault_id))
    await write.execute(sa.delete(vaults).where(vaults.c.id == vault_id))


async def kek_ids(read: Read) -> set[str]:
    """Return the key-encryption keys that vaults are wrapped with."""
    return set((await read.execute(sa.select(vaults.c.kek_id).distinct())).scalars())


async def some_vault_of(read: Read, kek_id: str) -> Vault | None:
    """Return a vault that is wrapped with a key-encryption key."""
    query = sa.select(vaults).where(vaults.c.kek_id == kek_id).order_by(vaults.c.id).limit(1)
    return next(iter(await _vaults(read, query)), None)


async def vaults_after(read: Read, vault_id: str, limit: int) -> Sequence[Vault]:
    """Return vaults by their ids, from behind one of them."""
    query = sa.select(vaults).where(vaults.c.id > vault_id).order_by(vaults.c.id).limit(limit)
    return await _vaults(read, query)


async def rewrap(write: Write, vault: Vault, key: WrappedKey) -> None:
    """Put another wrapping in place of the one that a vault was read with, if that is there."""
    same = sa.and_(vaults.c.id == vault.id, vaults.c.wrapped_key == vault.key.data)
    changed = sa.update(vaults).where(same)
    await write.execute(changed.values(kek_id=key.kek_id, wrapped_key=key.data))


# Secrets


async def page(read: Read, vault_id: str, window: Window) -> Sequence[StoredSecret]:
    """Return part of a vault's secrets, by name."""
    query = _SECRETS.where(vault_secrets.c.vault_id == vault_id)
    query = query.order_by(vault_secrets.c.name).limit(window.limit).offset(window.offset)
    return [_secret(row) for row in await read.execute(query)]


async def secrets_named(
    read: Read, vault_id: str, names: Collection[str]
) -> dict[str, StoredSecret]:
    """Return those of some names that are in a vault."""
    query = _SECRETS.where(vault_secrets.c.vault_id == vault_id, vault_secrets.c.name.in_(names))
    found = map(_secret, await read.execute(query))
    return {secret.name: secret for secret in found}


async def secrets_of(read: Read, vault_ids: Collection[str]) -> Sequence[StoredSecret]:
    """Return every secret of some vaults."""
    query = _SECRETS.where(vault_secrets.c.vault_id.in_(vault_ids))
    return [_secret(row) for row in await read.execute(query)]


async def put(write: Write, secret: StoredSecret) -> None:
    """Store a secret in place of the one of its name; its vault has to be held."""
    row = asdict(secret)
    kept = {name: row[name] for name in row if name not in {"vault_id", "name", "created_at"}}
    stored = insert(write, vault_secrets).values(**row)
    await write.execute(
        stored.on_conflict_do_update(index_elements=["vault_id", "name"], set_=kept)
    )


async def delete(write: Write, vault_id: str, name: str) -> StoredSecret | None:
    """Remove a secret that is bound to hosts; return it, None where there is none."""
    table = vault_secrets.c
    named = sa.and_(table.vault_id == vault_id, table.name == name, table.fingerprint.is_not(None))
    gone = sa.delete(vault_secrets).where(named).returning(*_COLUMNS)
    row = (await write.execute(gone)).first()
    return None if row is None else _secret(row)


# Subjects


async def add_subject(write: Write, subject: VaultSubject) -> None:
    """Store a new subject."""
    await write.execute(sa.insert(vault_subjects).values(**asdict(subject)))


async def subject(read: Read, intern_id: str) -> VaultSubject | None:
    """Return an intern's subject, or None."""
    query = sa.select(vault_subjects).where(vault_subjects.c.intern_id == intern_id)
    row = (await read.execute(query)).mappings().first()
    return None if row is None else VaultSubject(**row)


async def has_subjects(read: Read, workspace_id: str) -> bool:
    """Tell whether interns of a workspace have vaults."""
    query = sa.select(vault_subjects.c.intern_id).where(
        vault_subjects.c.workspace_id == workspace_id
    )
    return (await read.execute(query.limit(1))).first() is not None


async def delete_subject(write: Write, intern_id: str) -> None:
    """Remove a subject; its vault has to go after it."""
    await write.execute(sa.delete(vault_subjects).where(vault_subjects.c.intern_id == intern_id))


async def _vaults(read: Read, query: sa.Select[Any]) -> list[Vault]:
    found: list[Vault] = []
    for row in (await read.execute(query)).mappings():
        facts: dict[str, Any] = dict(row)
        facts["key"] = WrappedKey(facts.pop("kek_id"), bytes(facts.pop("wrapped_key")))
        facts["kind"] = VaultKind(facts["kind"])
        found.append(Vault(**facts))
    return found


def _secret(row: sa.Row[Any]) -> StoredSecret:
    values: Any = row  # in the order of the fields
    return StoredSecret(*values)
