"""Use cases of accounts, workspaces, users and keys.

Every method takes the transaction that the edge opened and commits nothing. The `Authenticator` is
notified of a change to a key as soon as it is committed, before the caller gets its answer.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from tollhouse.audit.service import AuditService
from tollhouse.identity import repository
from tollhouse.identity.access import check_programme, new_key
from tollhouse.identity.types import (
    AccessPolicy,
    Account,
    AccountType,
    ApiKey,
    IssuedKey,
    KeyFilter,
    KeyKind,
    Manager,
    NewKey,
    PolicyScope,
    Subject,
    Switches,
    User,
    Workspace,
    check_guardrails,
    subject_of,
)
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import Forbidden, Invalid, NotFound, Unauthenticated
from tollhouse.kernel.ids import IdSource
from tollhouse.kernel.pages import Page, Window
from tollhouse.storage.database import Read, Write
from tollhouse.storage.notifications import Topic

T = TypeVar("T")
DEFAULT_WORKSPACE = "default"
_TWO = Window(limit=2)
_SWITCHES = Switches.__slots__
_COLUMNS = ("name", "slug", "description", *_SWITCHES)


async def _nothing(_write: Write, _workspace: Workspace, _who: Manager) -> None:
    """Nothing else belongs to a workspace."""


@dataclass(eq=False, repr=False)
class IdentityService:
    """Accounts, workspaces, users and keys."""

    clock: Clock
    ids: IdSource
    guardrails: Collection[str] = ()
    """Slugs of those that a policy may name."""
    _: KW_ONLY
    workspace_leaves: Callable[[Write, Workspace, Manager], Awaitable[None]] = _nothing
    """Called with a workspace and who removes it, in the transaction; raises to keep it."""

    audit: AuditService = field(init=False)
    """Whoever asks for a change records it there, in the same transaction."""

    def __post_init__(self) -> None:
        self.audit = AuditService(self.clock)

    # Accounts

    async def create_account(
        self,
        write: Write,
        name: str,
        account_type: AccountType = AccountType.PREPAID,
        *,
        free_limits_exempt: bool = False,
    ) -> tuple[Account, Workspace]:
        """Make an account together with its default workspace."""
        account = Account(
            self.ids.uuid(),
            name,
            self.clock.now(),
            type=account_type,
            free_limits_exempt=free_limits_exempt,
        )
        await repository.add(write, account)
        workspace = replace(
            self._new_workspace(account.id, None),
            is_default=True,
            name="Default",
            slug=DEFAULT_WORKSPACE,
            created_at=account.created_at,
        )
        await repository.add_workspace(write, workspace)
        return account, workspace

    async def account(self, read: Read, who: Manager, account_id: str) -> Account:
        """Return an account that the manager may see (or raise `NotFound`)."""
        return _found(await repository.get_account(read, who.account_for(account_id)), "account")

    async def accounts(self, read: Read, who: Manager, window: Window) -> Page[Account]:
        """Return the accounts that the manager may see, oldest first."""
        only = None if who.operator else who.account_id
        return await repository.list_accounts(read, only, window)

    async def change_account(  # noqa: PLR0913 - each is a field that can be changed
        self,
        write: Write,
        who: Manager,
        account_id: str,
        *,
        name: str | None = None,
        account_type: AccountType | None = None,
        free_limits_exempt: bool | None = None,
        intern_programme: bool | None = None,
        vault_writes: bool | None = None,
    ) -> Account:
        """Change what is given of an account and leave the rest.

        Raises `NotFound` where there is no such account, and `Forbidden` because how it pays, what
        it is exempt from and what it may do is for an operator to say.
        """
        found = await self.account(write, who, account_id)
        operators = {
            "type": account_type,
            "free_limits_exempt": free_limits_exempt,
            "intern_programme": intern_programme,
            "vault_writes": vault_writes,
        }
        given = {field: value for field, value in operators.items() if value is not None}
        if given and not who.operator:
            raise Forbidden(f"Only an operator can change {', '.join(given)} of an account.")
        changed = replace(
            found,
            name=found.name if name is None else name,
            updated_at=self.clock.now(),
            **given,  # pyright: ignore[reportArgumentType] - the fields of the same names
        )
        await repository.save(write, changed)
        write.notify(Topic.ACCOUNT, account_id)
        return changed

    async def home(self, read: Read, who: Manager, account_id: str | None = None) -> str:
        """Return the account that an operation is about.

        A local operator who names none means the only account there is. Raises `Invalid` where
        there are several to choose from, and `NotFound` where there is none, or not for this
        manager.
        """
        if account_id is None and who.account_id is None:
            everyone = await repository.list_accounts(read, None, _TWO)
            if everyone.total == 1:
                return everyone.items[0].id
        chosen = who.account_for(account_id)
        return _found(await repository.get_account(read, chosen), "account").id

    # Workspaces

    async def create_workspace(
        self, write: Write, account_id: str, facts: Mapping[str, object], created_by: str | None
    ) -> Workspace:
        """Make a workspace; `created_by` is the user who makes it, where known.

        `facts` are `name`, `slug`, `description` and any preferences. Raises `Invalid` where the
        slug is taken.
        """
        workspace = _with_facts(self._new_workspace(account_id, created_by), facts)
        if not await repository.add_workspace(write, workspace):
            raise _slug_taken(workspace.slug)
        return workspace

    def _new_workspace(self, account_id: str, created_by: str | None) -> Workspace:
        return Workspace(
            id=self.ids.uuid(),
            account_id=account_id,
            is_default=False,
            name="",
            slug="",
            description=None,
            preferences={},
            created_by=created_by,
            created_at=self.clock.now(),
        )

    async def workspace(self, read: Read, account_id: str, reference: str) -> Workspace:
        """Return a workspace of an account by its id or slug (or raise `NotFound`)."""
        return _found(await repository.find_workspace(read, account_id, reference), "workspace")

    async def default_workspace(self, read: Read, account_id: str) -> Workspace:
        """Return the workspace that is meant where none is named; `NotFound` if it was deleted."""
        found = await repository.default_workspace(read, account_id)
        if found is None:
            raise NotFound("The account has no default workspace; name one with workspace_id.")
        return found

    async def switches(self, read: Read, workspace_id: str) -> Switches:
        """Return what an operator lets a workspace do; nothing where there is none."""
        return await repository.switches(read, workspace_id) or Switches(
            intern_programme=False, vault_writes=False
        )

    async def authorize_intern_access(
        self, read: Read, caller: Subject, intern_id: str | None
    ) -> Switches:
        """Make sure that a caller may ask for an intern, or for what is its workspace's where None.

        It is judged before anything else of such a request; returns what its workspace may do.

            1  the key         a management key has no workspace of its own    401
            2  the programme   who is outside learns nothing                   404
            3  the intern      its own key asks for it alone                   404
        """
        if caller.kind is KeyKind.MANAGEMENT:
            raise Unauthenticated(
                "Invalid or missing API key: a management key cannot use interns and vaults."
            )
        switches = await self.switches(read, caller.workspace_id)
        check_programme(switches)
        asked = None if intern_id is None else intern_id.lower()
        if caller.kind is KeyKind.INTERN and (asked is None or asked != caller.intern_id):
            raise NotFound("Not found.")
        return switches

    async def workspaces(self, read: Read, account_id: str, window: Window) -> Page[Workspace]:
        """Return the workspaces of an account, oldest first."""
        return await repository.list_workspaces(read, account_id, window)

    async def change_workspace(
        self,
        write: Write,
        who: Manager,
        account_id: str,
        reference: str,
        facts: Mapping[str, object],
    ) -> Workspace:
        """Change what `facts` names of a workspace and leave the rest.

        Raises `NotFound` where there is no such workspace, `Forbidden` because what it may do is
        for an operator to say, and `Invalid` where the new slug is taken.
        """
        found = await self.workspace(write, account_id, reference)
        if not who.operator and any(name in facts for name in _SWITCHES):
            raise Forbidden(f"Only an operator can change {' and '.join(_SWITCHES)}.")
        changed = replace(_with_facts(found, facts), updated_at=self.clock.now())
        if not await repository.save_workspace(write, changed):
            raise _slug_taken(changed.slug)
        return changed

    async def delete_workspace(
        self,
        write: Write,
        who: Manager,
        account_id: str,
        reference: str,
        *,
        default_confirmed: bool,
    ) -> None:
        """Remove a workspace that has no keys.

        Raises `NotFound` where there is no such workspace, and `Invalid` where it is the default
        one and that was not confirmed, or it still has keys.
        """
        found = await self.workspace(write, account_id, reference)
        if found.is_default and not default_confirmed:
            message = (
                "This is the default workspace; confirm with confirm_default_workspace_deletion."
            )
            raise Invalid(message)
        # Its interns come first: their keys go with them.
        await self.workspace_leaves(write, found, who)
        if await repository.has_keys(write, found.id):
            raise Invalid("The workspace still has API keys; delete them first.")
        await repository.delete_workspace(write, found.id)

    # Users

    async def create_user(
        self, write: Write, account_id: str, name: str, email: str | None
    ) -> User:
        """Make a user of an account."""
        user = User(self.ids.uuid(), account_id, name, email, self.clock.now())
        await repository.add(write, user)
        return user

    async def user(self, read: Read, account_id: str, user_id: str) -> User:
        """Return a user of an account (or raise `NotFound`)."""
        return _found(await repository.get_user(read, account_id, user_id), "user")

    async def users(self, read: Read, account_id: str, window: Window) -> Page[User]:
        """Return the users of an account, oldest first."""
        return await repository.list_users(read, account_id, window)

    async def change_user(
        self, write: Write, account_id: str, user_id: str, facts: Mapping[str, str | None]
    ) -> User:
        """Change the name or email of a user and leave the rest (or raise `NotFound`)."""
        found = await self.user(write, account_id, user_id)
        changed = replace(
            found,
            name=facts.get("name") or found.name,
            email=facts.get("email", found.email),
            updated_at=self.clock.now(),
        )
        await repository.save(write, changed)
        return changed

    # Keys

    async def create_key(
        self, write: Write, who: Manager, account_id: str, wanted: NewKey
    ) -> IssuedKey:
        """Make a key; its text is in the answer and nowhere else.

        Raises `Forbidden` because only an operator makes operator keys, and `Invalid` where the
        workspace or user is not of the account, the expiry has passed, or the kind does not fit the
        rest.
        """
        now = self.clock.now()
        _check_new_key(who, wanted, now)
        workspace = await self._workspace_for_key(write, account_id, wanted.workspace_id)
        creator = wanted.creator_user_id
        if creator is not None and await repository.get_user(write, account_id, creator) is None:
            raise Invalid("creator_user_id: no such user in this account.")
        issued = new_key(self.ids, account_id, workspace.id, wanted, now)
        await repository.add(write, issued.key)
        return issued

    async def key(self, read: Read, who: Manager, key_hash: str) -> ApiKey:
        """Return a key that the manager may see (or raise `NotFound`)."""
        found = await repository.get_key(read, key_hash)
        if found is None or not who.sees_account(found.account_id):
            raise NotFound("No such key.")
        return found

    async def own_key(self, read: Read, subject: Subject) -> ApiKey:
        """Return the key that a caller came with; `NotFound` if it was deleted in this moment."""
        return _found(await repository.get_key(read, subject.key_hash), "key")

    async def owner(self, read: Read, key_hash: str, payer_hash: str | None) -> Subject:
        """Return the subject of a key with its policies as they are now, also if it is revoked.

        What was begun with a key goes on under it, and under the one that answered for it then.
        Raises `NotFound` where there never was such a key.
        """
        found = _found(await repository.get_key_ever(read, key_hash), "key")
        found = replace(found, payer_hash=payer_hash)
        return subject_of(found, await repository.policies_for(read, found))

    async def keys(self, read: Read, wanted: KeyFilter, window: Window) -> Page[ApiKey]:
        """Return keys, newest first."""
        return await repository.list_keys(read, wanted, window)

    async def keys_among(
        self, read: Read, account_id: str, key_hashes: Collection[str]
    ) -> Collection[str]:
        """Return those of some hashes that are keys of an account."""
        return await repository.keys_among(read, account_id, key_hashes)

    async def change_key(  # noqa: PLR0913 - each is a field that can be changed
        self,
        write: Write,
        who: Manager,
        key_hash: str,
        *,
        name: str | None = None,
        disabled: bool | None = None,
        workspace_id: str | None = None,
    ) -> ApiKey:
        """Change what is given of a key and leave the rest; effective before the answer.

        Raises `NotFound` where there is no such key, `Forbidden` where it is an operator's and the
        manager is none, and `Invalid` where the workspace is not of the key's account.
        """
        found = await self._changeable_key(write, who, key_hash)
        if workspace_id is not None:
            moved_to = await self._workspace_for_key(write, found.account_id, workspace_id)
            found = replace(found, workspace_id=moved_to.id)
        changed = replace(
            found,
            name=found.name if name is None else name,
            disabled=found.disabled if disabled is None else disabled,
            updated_at=self.clock.now(),
        )
        await repository.save(write, changed)
        write.notify(Topic.KEY, key_hash)
        return changed

    async def delete_key(self, write: Write, who: Manager, key_hash: str) -> None:
        """Revoke a key for ever; effective before the answer.

        Raises `NotFound` where there is no such key, and `Forbidden` where it is an operator's and
        the manager is none.
        """
        await self._changeable_key(write, who, key_hash)
        await repository.delete_key(write, key_hash, self.clock.now())
        write.notify(Topic.KEY, key_hash)

    # Policies

    async def policy(
        self,
        read: Read,
        who: Manager,
        scope: PolicyScope,
        owner: str,
        account_id: str | None = None,
    ) -> AccessPolicy:
        """Return the policy of an account, a workspace or a key; one without a rule if it has none.

        `owner` is the id of an account, the id or slug of a workspace, or the hash of a key;
        `account_id` is the workspace's, if that is not the manager's. Raises `NotFound` where there
        is no such owner, or not for this manager.
        """
        owner_id = await self._policy_owner(read, who, scope, owner, account_id)
        found = await repository.get_policies(read, {scope: owner_id})
        return found[0] if found else AccessPolicy(scope)

    async def set_policy(
        self,
        write: Write,
        who: Manager,
        owner: str,
        policy: AccessPolicy,
        account_id: str | None = None,
    ) -> None:
        """Put a policy in place of the one before; in force before the answer.

        Raises `NotFound` where there is no such owner, or not for this manager, and `Invalid` where
        it names a guardrail that there is not.
        """
        owner_id = await self._policy_owner(write, who, policy.scope, owner, account_id)
        check_guardrails(policy, self.guardrails)
        if policy == AccessPolicy(policy.scope):
            await repository.delete_policy(write, policy.scope, owner_id)
        else:
            await repository.save_policy(write, owner_id, policy, self.clock.now())
        write.notify(Topic.POLICY, owner_id)

    async def _policy_owner(
        self, read: Read, who: Manager, scope: PolicyScope, owner: str, account_id: str | None
    ) -> str:
        if scope == "account":
            return (await self.account(read, who, owner)).id
        if scope == "key":
            return (await self._changeable_key(read, who, owner)).hash
        return (await self.workspace(read, await self.home(read, who, account_id), owner)).id

    async def _changeable_key(self, read: Read, who: Manager, key_hash: str) -> ApiKey:
        found = await self.key(read, who, key_hash)
        if found.operator and not who.operator:
            raise Forbidden("Only an operator can change an operator's key.")
        return found

    async def _workspace_for_key(
        self, read: Read, account_id: str, workspace_id: str | None
    ) -> Workspace:
        if workspace_id is None:
            found = await repository.default_workspace(read, account_id)
        else:
            found = await repository.find_workspace(read, account_id, workspace_id)
        if found is None:
            raise Invalid("workspace_id: no such workspace in this account.")
        return found


def _found(thing: T | None, what: str) -> T:
    if thing is None:
        raise NotFound(f"No such {what}.")
    return thing


def _check_new_key(who: Manager, wanted: NewKey, now: datetime) -> None:
    if wanted.operator and not who.operator:
        raise Forbidden("Only an operator can make an operator's key.")
    if wanted.operator and wanted.kind is not KeyKind.MANAGEMENT:
        raise Invalid("operator: only a management key can be an operator's.")
    if (wanted.kind is KeyKind.INTERN) != (wanted.intern_id is not None):
        raise Invalid("intern_id: an intern's key names its intern, any other key names none.")
    if wanted.expires_at is not None and wanted.expires_at <= now:
        raise Invalid("expires_at: must lie in the future.")


def _with_facts(workspace: Workspace, facts: Mapping[str, object]) -> Workspace:
    columns = {name: facts[name] for name in _COLUMNS if name in facts}
    preferences = {name: value for name, value in facts.items() if name not in columns}
    return replace(
        workspace,
        preferences={**workspace.preferences, **preferences},
        **columns,  # pyright: ignore[reportArgumentType] - the endpoint's model typed them
    )


def _slug_taken(slug: str) -> Invalid:
    return Invalid(f"slug: {slug!r} is taken in this account.")
