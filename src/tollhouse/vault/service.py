"""Use cases of secrets: storing, listing, deleting, copying, and what an intern receives.

    database.reading ──> who may, which vault ──> key ──> database.writing ──> secret + audit row

A key may have to be asked for far away, so that happens between two transactions and never inside
one. What is changed and its row in the record are one transaction: neither is there without the
other. No method returns a value; `open` is for whoever sends it to a host that it is bound to.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tollhouse.audit.types import AuditAction, AuditEntry
from tollhouse.identity import admission
from tollhouse.kernel.errors import Conflict, Invalid, NotFound, Unavailable
from tollhouse.kernel.pages import Window
from tollhouse.vault import policy, repository
from tollhouse.vault.envelope import Unopenable, fingerprint, open_, seal
from tollhouse.vault.resolver import is_bound, resolve, verdict
from tollhouse.vault.types import (
    NewSecret,
    Scope,
    StoredSecret,
    Vault,
    VaultKind,
    VaultSubject,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.identity.types import Manager, Subject, Workspace
    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.transaction import Read, Write
    from tollhouse.vault.context import Context
    from tollhouse.vault.types import Resolved, Verdict

OPERATOR = "operator"
_GONE = "The attached vault is not available any more; the intern receives no secrets."


class SecretsPage(NamedTuple):
    """Part of a list."""

    secrets: Sequence[StoredSecret]
    has_more: bool


class _Target(NamedTuple):
    """A vault that is to be changed, opened, and by whom."""

    caller: Subject
    vault: Vault
    key: bytes
    intern_id: str | None


class VaultService:
    """Secrets of workspaces and of interns."""

    def __init__(self, context: Context) -> None:
        """Take what the use cases need."""
        self._context = context
        self._database = context.database
        self._keyring = context.keyring

    # Who may

    async def admit(
        self, caller: Subject, intern_id: str | None, *, writes: bool, copies: bool = False
    ) -> None:
        """Make sure that a caller may ask for this at all, before anything of it is looked at.

        Args:
            caller: Who asks.
            intern_id: The intern that it asks for, as it was sent; None for its workspace.
            writes: Whether it wants to change something.
            copies: Whether it wants to copy secrets of its workspace.

        Raises:
            Unauthenticated: Its key is none for vaults.
            NotFound: Its workspace is not in the programme, or its key is an intern's own and it
                asks for something else.
            WritesDisabled: It wants to change something, and that is switched off.
        """
        # What it copies is its workspace's, which an intern's own key cannot even list.
        asked = None if copies else intern_id
        async with self._database.reading() as read:
            switches = await admission.admit(self._context.identity, read, caller, asked)
        if writes:
            policy.check_writes(switches)

    # Looking

    async def secrets(
        self, read: Read, caller: Subject, intern_id: str | None, window: Window
    ) -> SecretsPage:
        """Return the secrets of a workspace, or those of one of its interns; by name.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
        """
        vault_id = await self._vault_id(read, caller, intern_id)
        if vault_id is None:
            return SecretsPage((), has_more=False)
        wanted = Window(window.offset, window.limit + 1)
        found = await repository.page(read, vault_id, wanted)
        return SecretsPage(found[: window.limit], len(found) > window.limit)

    async def effective(self, read: Read, caller: Subject, intern_id: str) -> dict[str, Resolved]:
        """Return what each name means for an intern of the caller's workspace; see `resolve`.

        Raises:
            NotFound: There is no such intern in the workspace, or the vault that it borrows is
                gone.
        """
        return await self._resolved(read, await self._subject(read, caller, intern_id))

    async def resolve(self, read: Read, intern_id: str) -> dict[str, Resolved]:
        """Return what each name means for an intern, sorted by name.

        Raises:
            NotFound: There is no such intern, or the vault that it borrows is gone.
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
        """Tell whether the secret of a name goes to a host; see `resolver.verdict`."""
        unbound = self._context.release_unbound
        return verdict(resolved, name, host, release_unbound=unbound)

    def is_bound(self, resolved: Mapping[str, Resolved], host: str) -> bool:
        """Tell whether any secret goes to a host; see `resolver.is_bound`."""
        return is_bound(resolved, host, release_unbound=self._context.release_unbound)

    async def open(self, secret: StoredSecret) -> Secret:
        """Return the value of a secret, for whoever sends it to a host that it is bound to.

        Raises:
            Unavailable: It cannot be opened.
        """
        return self._open(await self._key_of(secret.vault_id), secret)

    # Changing

    async def put(
        self, caller: Subject, intern_id: str | None, name: str, new: NewSecret
    ) -> StoredSecret:
        """Store a secret under a name, in place of what was there.

        Args:
            caller: Who asks; it was admitted.
            intern_id: The intern whose secret it is; None for the workspace's.
            name: Checked by `policy.check_name`.
            new: The value and its hosts.

        Raises:
            NotFound: There is no such intern in the caller's workspace.
            Unavailable: Writes were switched off, or the vault's key cannot be used now.
        """
        target = await self._target(caller, intern_id)
        async with self._database.writing() as write:
            await self._hold(write, target)
            stored = await self._store(write, target, name, new)
            await self._record(write, target, AuditAction.SECRET_WRITTEN, [stored])
        return stored

    async def delete(self, write: Write, caller: Subject, intern_id: str | None, name: str) -> None:
        """Remove a secret.

        Raises:
            NotFound: There is none of this name that was stored with hosts, or no such intern.
            WritesDisabled: Writes were switched off.
        """
        vault_id = await self._vault_id(write, caller, intern_id)
        await self._check_switches(write, caller.workspace_id)
        held = vault_id is not None and await repository.hold(write, vault_id)
        gone = await repository.delete(write, vault_id, name) if vault_id and held else None
        if gone is None:
            raise _no_secret(name)
        entry = self._entry(caller, AuditAction.SECRET_DELETED, intern_id, gone)
        await self._context.audit.record(write, caller.account_id, [entry])
        self._tell(write, gone.vault_id)

    async def copy(
        self, caller: Subject, intern_id: str, names: Sequence[str]
    ) -> Sequence[StoredSecret]:
        """Copy secrets of the workspace into an intern's own vault, all of them or none.

        Returns:
            The copies, in the order of the names.

        Raises:
            NotFound: There is no such intern, or the workspace has no secret of one of the names.
            Conflict: One is from before secrets were bound to hosts.
            Unavailable: Writes were switched off, or a key cannot be used now.
        """
        async with self._database.reading() as read:
            await self._subject(read, caller, intern_id)
            source = await repository.workspace_vault(read, caller.workspace_id)
        if source is None:
            raise _no_secret(names[0])
        source_key = await self._keyring.key(source)
        target = await self._target(caller, intern_id)
        async with self._database.writing() as write:
            await self._hold(write, target)
            originals = await repository.secrets_named(write, source.id, names)
            chosen = _copyable(originals, names)
            copies = [
                await self._store(
                    write,
                    target,
                    original.name,
                    NewSecret(self._open(source_key, original), original.hosts or ()),
                )
                for original in chosen
            ]
            await self._record(write, target, AuditAction.SECRET_COPIED, copies)
        return copies

    async def make_vault(self, account_id: str, workspace_id: str) -> Vault:
        """Make a workspace's vault; whoever does so at the same time makes the same one.

        Raises:
            Unavailable: The key-encryption keys cannot be used now.
        """
        while True:
            vault = await self.new_vault(account_id, workspace_id, VaultKind.WORKSPACE)
            async with self._database.writing() as write:
                if await self._add_vault(write, vault):
                    return await repository.workspace_vault(write, workspace_id) or vault

    # Subjects, for whoever keeps interns

    async def new_vault(self, account_id: str, workspace_id: str, kind: VaultKind) -> Vault:
        """Return a vault with a key of its own, not stored yet.

        Raises:
            Unavailable: The key-encryption keys cannot be used now.
        """
        vault_id = self._context.ids.uuid()
        key = await self._keyring.new(vault_id)
        now = self._context.clock.now()
        return Vault(vault_id, account_id, workspace_id, kind, key, now)

    async def add_subject(
        self, write: Write, intern_id: str, own: Vault, attached_vault_id: str | None
    ) -> VaultSubject:
        """Give an intern a vault of its own, and perhaps one that it borrows.

        Args:
            write: The transaction.
            intern_id: The intern.
            own: As `new_vault` made it.
            attached_vault_id: Another intern's, of the same workspace.

        Raises:
            Invalid: The attached vault is none of that kind.
            Unavailable: The key-encryption key was changed since `new_vault`; make another.
        """
        if not await self._add_vault(write, own):
            message = "The vault's key was changed in this moment; try again."
            raise Unavailable(message, retry_after=1)
        subject = VaultSubject(
            intern_id,
            own.account_id,
            own.workspace_id,
            own.id,
            attached_vault_id,
            self._context.clock.now(),
        )
        await self._check_attachable(write, subject)
        await repository.add_subject(write, subject)
        return subject

    async def is_attachable(self, read: Read, workspace_id: str, vault_id: str) -> bool:
        """Tell whether another intern of a workspace may borrow a vault."""
        found = await repository.vaults_of(read, [vault_id])
        return any(_is_an_interns(vault, workspace_id) for vault in found)

    async def seal_beside(self, vault_id: str, name: str, value: Secret) -> bytes:
        """Return a value sealed under a vault's key that is kept elsewhere.

        Args:
            vault_id: The vault.
            name: What it is, which no secret may be called: with a hyphen in it.
            value: The plaintext.

        Raises:
            Unavailable: The vault is gone, or its key cannot be used now.
        """
        return seal(await self._key_of(vault_id), value, vault_id, name, 1)

    async def open_beside(self, vault_id: str, name: str, sealed: bytes) -> Secret:
        """Return the value that `seal_beside` has sealed.

        Raises:
            Unavailable: It cannot be opened.
        """
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
        vaults = await repository.vaults_of(write, [subject.own_vault_id])
        for vault in vaults:
            await self._remove(write, vault, actor, intern_id)

    async def workspace_leaves(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Remove the vault of a workspace that is removed.

        Raises:
            Invalid: It still has interns.
        """
        if await repository.has_subjects(write, workspace.id):
            message = "The workspace still has interns; delete them first."
            raise Invalid(message)
        for vault in await repository.vaults_in(write, workspace.id):
            await self._remove(write, vault, who.key_hash or OPERATOR, None)

    # Parts

    async def _key_of(self, vault_id: str) -> bytes:
        key = self._keyring.known(vault_id)
        if key is not None:
            return key
        async with self._database.reading() as read:
            vaults = await repository.vaults_of(read, [vault_id])
        if not vaults:
            raise _not_opened()
        return await self._keyring.key(vaults[0])

    async def _add_vault(self, write: Write, vault: Vault) -> bool:
        """Store a vault; false where its key is wrapped with one that is about to be forgotten."""
        await repository.no_new_vaults(write)
        keys = self._keyring.keys
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
        entry = AuditEntry(
            AuditAction.VAULT_DELETED, actor, vault.workspace_id, intern_id, vault.id
        )
        await self._context.audit.record(write, vault.account_id, [entry])
        write.after_commit(partial(self._keyring.forget, vault.id))
        self._tell(write, vault.id)

    async def _check_attachable(self, read: Read, subject: VaultSubject) -> None:
        if subject.attached_vault_id is None:
            return
        fits = await self.is_attachable(read, subject.workspace_id, subject.attached_vault_id)
        if not fits or subject.attached_vault_id == subject.own_vault_id:
            message = "attached_vault_id: no other intern's vault of this workspace."
            raise Invalid(message)

    async def _subject(self, read: Read, caller: Subject, intern_id: str) -> VaultSubject:
        found = await repository.subject(read, intern_id)
        if found is None or found.workspace_id != caller.workspace_id:
            raise _no_intern()
        return found

    async def _resolved(self, read: Read, subject: VaultSubject) -> dict[str, Resolved]:
        scopes = await self._scopes(read, subject)
        secrets = await repository.secrets_of(read, scopes)
        return resolve(
            (scope, [each for each in secrets if each.vault_id == vault_id])
            for vault_id, scope in scopes.items()
        )

    async def _scopes(self, read: Read, subject: VaultSubject) -> dict[str, Scope]:
        """Return the vaults that a subject receives from."""
        scopes = {subject.own_vault_id: Scope.INTERN}
        if subject.attached_vault_id is not None:
            scopes[subject.attached_vault_id] = Scope.ATTACHED
            if not await repository.vaults_of(read, [subject.attached_vault_id]):
                raise NotFound(_GONE)
        shared = await repository.workspace_vault(read, subject.workspace_id)
        if shared is not None:
            scopes[shared.id] = Scope.WORKSPACE
        return scopes

    async def _vault_id(self, read: Read, caller: Subject, intern_id: str | None) -> str | None:
        if intern_id is not None:
            return (await self._subject(read, caller, intern_id)).own_vault_id
        vault = await repository.workspace_vault(read, caller.workspace_id)
        return None if vault is None else vault.id

    async def _target(self, caller: Subject, intern_id: str | None) -> _Target:
        """Return the vault that a caller changes, opened; the workspace's is made if need be."""
        async with self._database.reading() as read:
            vault_id = await self._vault_id(read, caller, intern_id)
            found = await repository.vaults_of(read, [vault_id] if vault_id else [])
        vault = found[0] if found else await self.make_vault(caller.account_id, caller.workspace_id)
        return _Target(caller, vault, await self._keyring.key(vault), intern_id)

    async def _hold(self, write: Write, target: _Target) -> None:
        workspace_id = target.caller.workspace_id
        await self._check_switches(write, workspace_id)
        if not await repository.hold(write, target.vault.id):
            raise _gone()

    async def _check_switches(self, write: Write, workspace_id: str) -> None:
        """Look again in the transaction that changes something."""
        switches = await self._context.identity.switches(write, workspace_id)
        admission.check_programme(switches)
        policy.check_writes(switches)

    async def _store(
        self, write: Write, target: _Target, name: str, new: NewSecret
    ) -> StoredSecret:
        vault, now = target.vault, self._context.clock.now()
        before = (await repository.secrets_named(write, vault.id, [name])).get(name)
        version = 1 if before is None else before.version + 1
        stored = StoredSecret(
            vault_id=vault.id,
            name=name,
            version=version,
            hosts=new.hosts,
            fingerprint=fingerprint(target.key, new.value),
            created_at=now if before is None else before.created_at,
            updated_at=now,
            sealed=seal(target.key, new.value, vault.id, name, version),
        )
        await repository.put(write, stored)
        return stored

    async def _record(
        self, write: Write, target: _Target, action: AuditAction, secrets: Sequence[StoredSecret]
    ) -> None:
        caller = target.caller
        entries = [self._entry(caller, action, target.intern_id, secret) for secret in secrets]
        await self._context.audit.record(write, caller.account_id, entries)
        self._tell(write, target.vault.id)

    def _entry(
        self, caller: Subject, action: AuditAction, intern_id: str | None, secret: StoredSecret
    ) -> AuditEntry:
        return AuditEntry(
            action=action,
            actor=caller.key_hash,
            workspace_id=caller.workspace_id,
            intern_id=intern_id,
            vault_id=secret.vault_id,
            name=secret.name,
            version=secret.version,
            hosts=secret.hosts,
        )

    def _tell(self, write: Write, vault_id: str) -> None:
        write.after_commit(partial(self._context.changed, vault_id))

    def _open(self, key: bytes, secret: StoredSecret) -> Secret:
        try:
            return open_(key, secret.sealed, secret.vault_id, secret.name, secret.version)
        except Unopenable:
            raise _not_opened() from None


def _copyable(secrets: Mapping[str, StoredSecret], names: Sequence[str]) -> Sequence[StoredSecret]:
    for name in names:
        if name not in secrets:
            raise _no_secret(name)
    for name in names:
        if secrets[name].is_legacy:
            raise Conflict(f"{name} is bound to no host; store it again before it is copied.")
    return [secrets[name] for name in names]


def _gone() -> NotFound:
    return NotFound("The vault was deleted in this moment.")


def _no_intern() -> NotFound:
    return NotFound("No such intern in this workspace.")


def _no_secret(name: str) -> NotFound:
    return NotFound(f"There is no secret {name} here.")


def _not_opened() -> Unavailable:
    message = "The secret cannot be opened; store it again."
    return Unavailable(message, metadata={"retryable": False})


def _is_an_interns(vault: Vault, workspace_id: str) -> bool:
    return vault.kind is VaultKind.INTERN and vault.workspace_id == workspace_id
