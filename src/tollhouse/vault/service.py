"""Use cases of secrets: storing, listing, deleting, copying, and what an intern receives.

    database.reading ──> who may, which vault ──> key ──> database.writing ──> secret + audit row

A key may have to be asked for far away, so that happens between two transactions and never inside
one. What is changed and its row in the record are one transaction: neither is there without the
other. No method returns a value; `open` is for whoever sends it to a host that it is bound to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from tollhouse.audit.service import AuditService
from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.identity.access import check_programme
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import Manager, Subject, Workspace
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import Conflict, Invalid, NotFound, Unavailable
from tollhouse.kernel.ids import IdSource
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.storage.database import Database, Read, Write
from tollhouse.storage.notifications import Topic
from tollhouse.vault import policy, repository
from tollhouse.vault.envelope import Unopenable, fingerprint, open_, seal
from tollhouse.vault.key_encryption import Keyring
from tollhouse.vault.policy import is_bound, resolve, verdict
from tollhouse.vault.types import (
    NewSecret,
    Resolved,
    Scope,
    StoredSecret,
    Vault,
    VaultKind,
    VaultSubject,
    Verdict,
)


@dataclass(frozen=True, slots=True)
class VaultContext:
    """What every part of the vault uses."""

    database: Database
    identity: IdentityService
    audit: AuditService
    keyring: Keyring
    clock: Clock
    ids: IdSource
    release_unbound: bool = False
    """Whether a secret without hosts goes to any."""


_GONE = "The attached vault is not available any more; the intern receives no secrets."


class SecretsPage(NamedTuple):
    """Part of a list."""

    secrets: Sequence[StoredSecret]
    has_more: bool


class _Target(NamedTuple):
    """A vault that a caller is to change, opened."""

    caller: Subject
    vault: Vault
    key: bytes


@dataclass(eq=False, repr=False)
class VaultService:
    """Secrets of workspaces and of interns."""

    context: VaultContext

    # Who may

    async def admit(
        self, caller: Subject, intern_id: str | None, *, writes: bool, copies: bool = False
    ) -> None:
        """Make sure that a caller may ask for this at all, before anything of it is looked at.

        Raises what `authorize_intern_access` does, and `WritesDisabled` where it wants to change
        something, and that is switched off.
        """
        # What it copies is its workspace's, which an intern's own key cannot even list.
        asked = None if copies else intern_id
        async with self.context.database.reading() as read:
            switches = await self.context.identity.authorize_intern_access(read, caller, asked)
        if writes:
            policy.check_writes(switches)

    # Looking

    async def secrets(
        self, read: Read, caller: Subject, intern_id: str | None, window: Window
    ) -> SecretsPage:
        """Return the secrets of a workspace, or those of one of its interns, by name.

        Raises `NotFound` where there is no such intern in the caller's workspace.
        """
        vault_id = await self._vault_id(read, caller, intern_id)
        if vault_id is None:
            return SecretsPage((), has_more=False)
        wanted = Window(window.offset, window.limit + 1)
        found = await repository.page(read, vault_id, wanted)
        return SecretsPage(found[: window.limit], len(found) > window.limit)

    async def effective(self, read: Read, caller: Subject, intern_id: str) -> dict[str, Resolved]:
        """Return what `resolve` does, for an intern of the caller's workspace (or `NotFound`)."""
        return await self._resolved(read, await self._subject(read, caller, intern_id))

    async def resolve(self, read: Read, intern_id: str) -> dict[str, Resolved]:
        """Return what each name means for an intern, sorted by name.

        Raises `NotFound` where there is no such intern, or the vault that it borrows is gone.
        """
        subject = await repository.subject(read, intern_id)
        if subject is None:
            raise _no_intern()
        return await self._resolved(read, subject)

    async def resolve_shared(self, read: Read, workspace_id: str) -> dict[str, Resolved]:
        """Return what each name means for a program that runs for a whole workspace."""
        vault = await repository.workspace_vault(read, workspace_id)
        secrets = await repository.secrets_of(read, [] if vault is None else [vault.id])
        return resolve([(Scope.WORKSPACE, secrets)])

    def verdict(self, resolved: Mapping[str, Resolved], name: str, host: str) -> Verdict:
        """Tell whether the secret of a name goes to a host; see `policy.verdict`."""
        return verdict(resolved, name, host, release_unbound=self.context.release_unbound)

    def is_bound(self, resolved: Mapping[str, Resolved], host: str) -> bool:
        """Tell whether any secret goes to a host; see `policy.is_bound`."""
        return is_bound(resolved, host, release_unbound=self.context.release_unbound)

    async def open(self, secret: StoredSecret) -> Secret:
        """Return the value of a secret, for whoever sends it to a host that it is bound to.

        Raises `Unavailable` where it cannot be opened.
        """
        return self._open(await self._key_of(secret.vault_id), secret)

    # Changing

    async def put(
        self, caller: Subject, intern_id: str | None, name: str, new: NewSecret
    ) -> StoredSecret:
        """Store a secret under a checked name, in place of what was there.

        Raises `NotFound` where there is no such intern in the caller's workspace, and `Unavailable`
        where writes were switched off, or the vault's key cannot be used now.
        """
        target = await self._target(caller, intern_id)
        async with self.context.database.writing() as write:
            await self._hold(write, target)
            stored = await self._store(write, target, name, new)
            await self._record(write, caller, intern_id, AuditAction.SECRET_WRITTEN, [stored])
        return stored

    async def delete(self, write: Write, caller: Subject, intern_id: str | None, name: str) -> None:
        """Remove a secret.

        Raises `NotFound` where there is none of this name that was stored with hosts, or no such
        intern, and `WritesDisabled` where writes were switched off.
        """
        vault_id = await self._vault_id(write, caller, intern_id)
        await self._check_switches(write, caller.workspace_id)
        held = vault_id is not None and await repository.hold(write, vault_id)
        gone = await repository.delete(write, vault_id, name) if vault_id and held else None
        if gone is None:
            raise _no_secret(name)
        await self._record(write, caller, intern_id, AuditAction.SECRET_DELETED, [gone])

    async def copy(
        self, caller: Subject, intern_id: str, names: Sequence[str]
    ) -> Sequence[StoredSecret]:
        """Copy secrets of the workspace into an intern's own vault, all of them or none.

        Returns the copies, in the order of the names. Raises `NotFound` where there is no such
        intern, or the workspace has no secret of one of the names, `Conflict` where one is from
        before secrets were bound to hosts, and `Unavailable` where writes were switched off, or a
        key cannot be used now.
        """
        async with self.context.database.reading() as read:
            await self._subject(read, caller, intern_id)
            source = await repository.workspace_vault(read, caller.workspace_id)
        if source is None:
            raise _no_secret(names[0])
        source_key = await self.context.keyring.key(source)
        target = await self._target(caller, intern_id)
        async with self.context.database.writing() as write:
            await self._hold(write, target)
            originals = await repository.secrets_named(write, source.id, names)
            copies: list[StoredSecret] = []
            for each in _copyable(originals, names):
                new = NewSecret(self._open(source_key, each), each.hosts or ())
                copies.append(await self._store(write, target, each.name, new))
            await self._record(write, caller, intern_id, AuditAction.SECRET_COPIED, copies)
        return copies

    async def make_vault(self, account_id: str, workspace_id: str) -> Vault:
        """Make a workspace's vault; whoever does so at the same time makes the same one.

        Raises `Unavailable` where the key-encryption keys cannot be used now.
        """
        while True:
            vault = await self.new_vault(account_id, workspace_id, VaultKind.WORKSPACE)
            async with self.context.database.writing() as write:
                if await self._add_vault(write, vault):
                    return await repository.workspace_vault(write, workspace_id) or vault

    async def vault_of_workspace(self, account_id: str, workspace_id: str) -> str:
        """Return the id of a workspace's vault, which is made if need be; see `make_vault`."""
        async with self.context.database.reading() as read:
            found = await repository.workspace_vault(read, workspace_id)
        return (found or await self.make_vault(account_id, workspace_id)).id

    # Subjects, for whoever keeps interns

    async def new_vault(self, account_id: str, workspace_id: str, kind: VaultKind) -> Vault:
        """Return a vault with its own key, not stored yet; `Unavailable` where none can be had."""
        vault_id = self.context.ids.uuid()
        key = await self.context.keyring.new(vault_id)
        now = self.context.clock.now()
        return Vault(vault_id, account_id, workspace_id, kind, key, now)

    async def add_subject(
        self, write: Write, intern_id: str, own: Vault, attached_vault_id: str | None
    ) -> VaultSubject:
        """Give an intern a vault of its own from `new_vault`, and perhaps one that it borrows.

        Raises `Invalid` where that one is none of another intern's, and `Unavailable` where the
        key-encryption key was changed since `new_vault`: make another.
        """
        if not await self._add_vault(write, own):
            message = "The vault's key was changed in this moment; try again."
            raise Unavailable(message, retry_after=1)
        now = self.context.clock.now()
        subject = VaultSubject(
            intern_id, own.account_id, own.workspace_id, own.id, attached_vault_id, now
        )
        if attached_vault_id is not None:
            fits = await self.is_attachable(write, own.workspace_id, attached_vault_id)
            if not fits or attached_vault_id == own.id:
                raise Invalid("attached_vault_id: no other intern's vault of this workspace.")
        await repository.add_subject(write, subject)
        return subject

    async def is_attachable(self, read: Read, workspace_id: str, vault_id: str) -> bool:
        """Tell whether another intern of a workspace may borrow a vault."""
        found = await repository.vaults_of(read, [vault_id])
        return any(
            vault.kind is VaultKind.INTERN and vault.workspace_id == workspace_id for vault in found
        )

    async def seal_beside(self, vault_id: str, name: str, value: Secret) -> bytes:
        """Return a value, kept elsewhere, sealed under a vault's key.

        The name needs a hyphen, which no secret's name has. Raises `Unavailable` where the vault is
        gone, or its key cannot be used now.
        """
        return seal(await self._key_of(vault_id), value, vault_id, name, 1)

    async def open_beside(self, vault_id: str, name: str, sealed: bytes) -> Secret:
        """Return what `seal_beside` has sealed; `Unavailable` where it cannot be opened."""
        try:
            return open_(await self._key_of(vault_id), sealed, vault_id, name, 1)
        except Unopenable:
            raise _not_opened() from None

    async def forget_subject(self, write: Write, intern_id: str, actor: str) -> None:
        """Remove an intern's vault with its secrets; whoever borrows it receives nothing then."""
        subject = await repository.subject(write, intern_id)
        if subject is None:
            return
        await repository.delete_subject(write, intern_id)
        for vault in await repository.vaults_of(write, [subject.own_vault_id]):
            await self._remove(write, vault, actor, intern_id)

    async def workspace_leaves(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Remove the vault of a workspace that is removed; `Invalid` while it has interns."""
        if await repository.has_subjects(write, workspace.id):
            raise Invalid("The workspace still has interns; delete them first.")
        for vault in await repository.vaults_in(write, workspace.id):
            await self._remove(write, vault, who.actor, None)

    # Parts

    async def _key_of(self, vault_id: str) -> bytes:
        key = self.context.keyring.known(vault_id)
        if key is not None:
            return key
        async with self.context.database.reading() as read:
            vaults = await repository.vaults_of(read, [vault_id])
        if not vaults:
            raise _not_opened()
        return await self.context.keyring.key(vaults[0])

    async def _add_vault(self, write: Write, vault: Vault) -> bool:
        """Store a vault; false where its key is wrapped with one that is about to be forgotten."""
        await repository.no_new_vaults(write)
        keys = self.context.keyring.keys
        if vault.key.kek_id != keys.current_id:
            return False
        if not all(map(keys.knows, await repository.kek_ids(write))):
            # Somebody else has changed them, and may have forgotten the one that we use.
            message = "Vaults are sealed with a key that this process does not know; start it anew."
            raise Unavailable(message, metadata={"retryable": False})
        await repository.add_vault(write, vault)
        return True

    async def _remove(self, write: Write, vault: Vault, actor: str, intern_id: str | None) -> None:
        await repository.hold(write, vault.id)
        await repository.delete_vault(write, vault.id)
        action = AuditAction.VAULT_DELETED
        entry = AuditEntry(action, actor, vault.workspace_id, intern_id, vault.id)
        await self.context.audit.record(write, vault.account_id, [entry])
        write.after_commit(partial(self.context.keyring.forget, vault.id))
        write.notify(Topic.VAULT, vault.id)

    async def _subject(self, read: Read, caller: Subject, intern_id: str) -> VaultSubject:
        found = await repository.subject(read, intern_id)
        if found is None or found.workspace_id != caller.workspace_id:
            raise _no_intern()
        return found

    async def _resolved(self, read: Read, subject: VaultSubject) -> dict[str, Resolved]:
        scopes = {subject.own_vault_id: Scope.INTERN}
        if subject.attached_vault_id is not None:
            scopes[subject.attached_vault_id] = Scope.ATTACHED
            if not await repository.vaults_of(read, [subject.attached_vault_id]):
                raise NotFound(_GONE)
        shared = await repository.workspace_vault(read, subject.workspace_id)
        if shared is not None:
            scopes[shared.id] = Scope.WORKSPACE
        secrets = await repository.secrets_of(read, scopes)
        return resolve(
            (scope, [each for each in secrets if each.vault_id == vault_id])
            for vault_id, scope in scopes.items()
        )

    async def _vault_id(self, read: Read, caller: Subject, intern_id: str | None) -> str | None:
        if intern_id is not None:
            return (await self._subject(read, caller, intern_id)).own_vault_id
        vault = await repository.workspace_vault(read, caller.workspace_id)
        return None if vault is None else vault.id

    async def _target(self, caller: Subject, intern_id: str | None) -> _Target:
        """Return the vault that a caller changes, opened; the workspace's is made if need be."""
        async with self.context.database.reading() as read:
            vault_id = await self._vault_id(read, caller, intern_id)
            found = await repository.vaults_of(read, [vault_id] if vault_id else [])
        vault = found[0] if found else await self.make_vault(caller.account_id, caller.workspace_id)
        return _Target(caller, vault, await self.context.keyring.key(vault))

    async def _hold(self, write: Write, target: _Target) -> None:
        await self._check_switches(write, target.caller.workspace_id)
        if not await repository.hold(write, target.vault.id):
            raise NotFound("The vault was deleted in this moment.")

    async def _check_switches(self, write: Write, workspace_id: str) -> None:
        """Look again in the transaction that changes something."""
        switches = await self.context.identity.switches(write, workspace_id)
        check_programme(switches)
        policy.check_writes(switches)

    async def _store(
        self, write: Write, target: _Target, name: str, new: NewSecret
    ) -> StoredSecret:
        vault_id, now = target.vault.id, self.context.clock.now()
        before = (await repository.secrets_named(write, vault_id, [name])).get(name)
        stored = sealed_secret(vault_id, target.key, name, new.value, new.hosts, before, now)
        await repository.put(write, stored)
        return stored

    async def _record(
        self,
        write: Write,
        caller: Subject,
        intern_id: str | None,
        action: AuditAction,
        secrets: Sequence[StoredSecret],
    ) -> None:
        """Record a change of some secrets of one vault, and tell of it once it is durable."""
        about = (action, caller.key_hash, caller.workspace_id, intern_id)
        entries = [
            AuditEntry(*about, each.vault_id, each.name, each.version, each.hosts)
            for each in secrets
        ]
        await self.context.audit.record(write, caller.account_id, entries)
        write.notify(Topic.VAULT, secrets[0].vault_id)

    def _open(self, key: bytes, secret: StoredSecret) -> Secret:
        try:
            return open_(key, secret.sealed, secret.vault_id, secret.name, secret.version)
        except Unopenable:
            raise _not_opened() from None


def sealed_secret(  # noqa: PLR0913, PLR0917 - each is a fact of the row
    vault_id: str,
    key: bytes,
    name: str,
    value: Secret,
    hosts: tuple[str, ...] | None,
    before: StoredSecret | None,
    now: datetime,
) -> StoredSecret:
    """Return the row of a secret that takes the place of the one `before`."""
    version = 1 if before is None else before.version + 1
    return StoredSecret(
        vault_id=vault_id,
        name=name,
        version=version,
        hosts=hosts,
        fingerprint=None if hosts is None else fingerprint(key, value),
        created_at=now if before is None else before.created_at,
        updated_at=now,
        sealed=seal(key, value, vault_id, name, version),
    )


def _copyable(secrets: Mapping[str, StoredSecret], names: Sequence[str]) -> Sequence[StoredSecret]:
    for name in names:
        if name not in secrets:
            raise _no_secret(name)
    for name in names:
        if secrets[name].is_legacy:
            raise Conflict(f"{name} is bound to no host; store it again before it is copied.")
    return [secrets[name] for name in names]


def _no_intern() -> NotFound:
    return NotFound("No such intern in this workspace.")


def _no_secret(name: str) -> NotFound:
    return NotFound(f"There is no secret {name} here.")


def _not_opened() -> Unavailable:
    message = "The secret cannot be opened; store it again."
    return Unavailable(message, metadata={"retryable": False})
