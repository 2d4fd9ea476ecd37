"""Use cases of own keys: storing, listing, changing, removing them.

    database.reading ──> whose workspace ──> its vault ──> sealed ──> database.writing ──> audit row

A vault's key may have to be asked for far away, so that happens between two transactions. No method
returns a key's text; `OwnKeys` opens them for inference.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tollhouse.audit.types import AuditAction, RedactedValue
from tollhouse.kernel.errors import Invalid, NotFound
from tollhouse.provider_keys import policy, repository
from tollhouse.provider_keys.types import KeyRules, ProviderKey
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.identity.service import IdentityService
    from tollhouse.identity.types import Manager, Workspace
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.kernel.pages import Page, Window
    from tollhouse.kernel.secret import Secret
    from tollhouse.storage.database import Database, Read, Write
    from tollhouse.vault.service import VaultService

_NO_DEFAULT: Final = "workspace_id: the account has no default workspace; name one."


def sealed_name(key_id: str) -> str:
    """Return the name under which a key's text is sealed; no secret of a vault has such a one."""
    return f"provider-key-{key_id}"


@dataclass(frozen=True, slots=True)
class ProviderKeyContext:
    """What own keys need of the rest."""

    database: Database
    identity: IdentityService
    vault: VaultService
    clock: Clock
    ids: IdSource
    providers: Collection[str]
    """The slugs of those that there are."""


@dataclass(eq=False, repr=False)
class ProviderKeyService:
    """Own keys of the workspaces of accounts."""

    context: ProviderKeyContext

    async def keys(
        self,
        who: Manager,
        account_id: str | None,
        workspace: str | None,
        provider: str | None,
        window: Window,
    ) -> Page[ProviderKey]:
        """Return keys of a workspace, the default one unless named, in the order of asking.

        Raises `NotFound` where there is no such account or workspace, and `Invalid` where none is
        named and there is no default one.
        """
        async with self.context.database.reading() as read:
            home = await self.context.identity.home(read, who, account_id)
            found = await self._workspace(read, home, workspace)
            return await repository.page(read, found.id, provider, window)

    async def key(self, who: Manager, account_id: str | None, key_id: str) -> ProviderKey:
        """Return a key that the manager may see (or raise `NotFound`)."""
        async with self.context.database.reading() as read:
            return await self._key(read, who, account_id, key_id)

    async def create(  # noqa: PLR0913, PLR0917 - each is a fact of the key
        self,
        who: Manager,
        account_id: str | None,
        workspace: str | None,
        provider: str,
        secret: Secret,
        rules: KeyRules,
        *,
        placed: bool,
    ) -> ProviderKey:
        """Store a key behind the others of its provider, unless it is `placed` by its rules.

        Raises `Invalid` where the provider is none of this installation's, the text is no key of
        it, or the rules contradict each other or name keys of others; `NotFound` where there is no
        such workspace; `Unavailable` where the vault's key cannot be used now.
        """
        context = self.context
        if provider not in context.providers:
            there_are = ", ".join(sorted(context.providers))
            raise Invalid(f"provider: no such provider here; there are: {there_are}.")
        _check_rules(rules)
        text = secret.reveal()
        policy.check_key(provider, text)
        async with context.database.reading() as read:
            home = await context.identity.home(read, who, account_id)
            place = await self._workspace(read, home, workspace)
            await self._check_hashes(read, home, rules)
        key_id = context.ids.uuid()
        vault_id = await context.vault.vault_of_workspace(home, place.id)
        sealed = await context.vault.seal_beside(vault_id, sealed_name(key_id), secret)
        async with context.database.writing() as write:
            if not placed:
                last = await repository.last_place(write, place.id, provider)
                rules = replace(rules, sort_order=last + 1)
            key = ProviderKey(
                id=key_id,
                account_id=home,
                workspace_id=place.id,
                provider=provider,
                label=policy.label_of(provider, text),
                rules=rules,
                version=1,
                created_at=context.clock.now(),
                vault_id=vault_id,
                sealed=sealed,
            )
            await repository.add(write, key)
            await self._record(write, who, AuditAction.PROVIDER_KEY_CREATED, None, key)
        return key

    async def change(
        self,
        who: Manager,
        account_id: str | None,
        key_id: str,
        changes: Mapping[str, Any],
        secret: Secret | None,
    ) -> ProviderKey:
        """Change what is named of a key's rules, and its text if another is given.

        In force before the answer; requests under way end with the text that they began with.
        Raises what `create` does, and `NotFound` where there is no such key.
        """
        context = self.context
        async with context.database.reading() as read:
            found = await self._key(read, who, account_id, key_id)
        fresh: dict[str, Any] = {}
        if secret is not None:
            text = secret.reveal()
            policy.check_key(found.provider, text)
            name = sealed_name(key_id)
            fresh["sealed"] = await context.vault.seal_beside(found.vault_id, name, secret)
            fresh["label"] = policy.label_of(found.provider, text)
            fresh |= {"last_error": None, "last_error_at": None}
        async with context.database.writing() as write:
            before = await self._key(write, who, account_id, key_id)
            rules = replace(before.rules, **changes)
            _check_rules(rules)
            if "allowed_api_key_hashes" in changes:
                await self._check_hashes(write, before.account_id, rules)
            if fresh:
                fresh["version"] = before.version + 1
            after = replace(before, rules=rules, updated_at=context.clock.now(), **fresh)
            await repository.save(write, after)
            await self._record(write, who, AuditAction.PROVIDER_KEY_CHANGED, before, after)
        return after

    async def delete(self, who: Manager, account_id: str | None, key_id: str) -> None:
        """Remove a key; no request begins with it from then on. `NotFound` where there is none."""
        async with self.context.database.writing() as write:
            found = await self._key(write, who, account_id, key_id)
            await self._remove(write, who, found)

    async def workspace_leaves(self, write: Write, workspace: Workspace, who: Manager) -> None:
        """Remove the keys of a workspace that is removed."""
        for key in await repository.of_workspace(write, workspace.id):
            await self._remove(write, who, key)

    async def _remove(self, write: Write, who: Manager, key: ProviderKey) -> None:
        await repository.delete(write, key.id)
        await self._record(write, who, AuditAction.PROVIDER_KEY_DELETED, key, None)

    async def _record(
        self,
        write: Write,
        who: Manager,
        action: AuditAction,
        before: ProviderKey | None,
        after: ProviderKey | None,
    ) -> None:
        key = after or before
        if key is None:
            return
        old, new = (None if each is None else _facts(each) for each in (before, after))
        audit = self.context.identity.audit
        await audit.record_change(write, key.account_id, action, who.actor, key.id, old, new)
        write.notify(Topic.OWN_KEYS, key.account_id)

    async def _key(
        self, read: Read, who: Manager, account_id: str | None, key_id: str
    ) -> ProviderKey:
        home = await self.context.identity.home(read, who, account_id)
        found = await repository.get(read, home, key_id)
        if found is None:
            raise NotFound("No such own key.")
        return found

    async def _workspace(self, read: Read, account_id: str, named: str | None) -> Workspace:
        identity = self.context.identity
        try:
            if named is not None:
                return await identity.workspace(read, account_id, named)
            return await identity.default_workspace(read, account_id)
        except NotFound:
            message = _NO_DEFAULT if named is None else "workspace_id: no such workspace."
            raise Invalid(message) from None

    async def _check_hashes(self, read: Read, account_id: str, rules: KeyRules) -> None:
        wanted = rules.allowed_api_key_hashes or ()
        known = await self.context.identity.keys_among(read, account_id, wanted)
        for key_hash in wanted:
            if key_hash not in known:
                message = f"allowed_api_key_hashes: {key_hash} is no key of this account."
                raise Invalid(message)


def _check_rules(rules: KeyRules) -> None:
    if rules.is_byok_only and rules.is_fallback:
        raise Invalid("is_byok_only: cannot be combined with is_fallback.")


def _facts(key: ProviderKey) -> dict[str, Any]:
    """Return what the audit log holds of a key: of its text, that it changed."""
    facts = asdict(key) | asdict(key.rules)
    for name in ("rules", "sealed", "vault_id", "last_error", "last_error_at"):
        del facts[name]
    return {**facts, "key": RedactedValue(facts.pop("version"))}
