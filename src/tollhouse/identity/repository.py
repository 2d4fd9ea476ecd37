"""The SQL of accounts, workspaces, users and keys."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from tollhouse.identity.types import (
    AccessPolicy,
    Account,
    AccountType,
    ApiKey,
    KeyFilter,
    KeyKind,
    PayerPolicy,
    PolicyScope,
    Switches,
    User,
    Workspace,
)
from tollhouse.kernel.pages import Page, Window
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.identity import access_policies, accounts, api_keys, users, workspaces

T = TypeVar("T")
W = TypeVar("W", "sa.Select[Any]", sa.Update)
"""A statement that may be narrowed."""
_NOT_DELETED = api_keys.c.deleted_at.is_(None)
_TABLES = {Account: accounts, User: users, ApiKey: api_keys}


async def add(write: Write, record: Account | User | ApiKey) -> None:
    """Store a new record."""
    await write.execute(sa.insert(_TABLES[type(record)]).values(**asdict(record)))


async def save(write: Write, record: Account | User | ApiKey) -> None:
    """Store what changed about a record."""
    table, facts = _TABLES[type(record)], asdict(record)
    key = table.c.hash if isinstance(record, ApiKey) else table.c.id
    await write.execute(sa.update(table).where(key == facts[key.name]).values(**facts))


async def get_account(read: Read, account_id: str) -> Account | None:
    """Return an account, or None."""
    return await _one(read, sa.select(accounts).where(accounts.c.id == account_id), _account)


async def list_accounts(read: Read, only: str | None, window: Window) -> Page[Account]:
    """Return accounts, oldest first; just the one named by `only` where that is given."""
    query = sa.select(accounts).order_by(accounts.c.created_at, accounts.c.id)
    if only is not None:
        query = query.where(accounts.c.id == only)
    return await _page(read, query, window, _account)


async def add_workspace(write: Write, workspace: Workspace) -> bool:
    """Store a new workspace; False where its slug is taken in the account."""
    statement = (
        insert(write, workspaces)
        .values(**asdict(workspace))
        .on_conflict_do_nothing(index_elements=["account_id", "slug"])
        .returning(workspaces.c.id)
    )
    return (await write.execute(statement)).first() is not None


async def find_workspace(read: Read, account_id: str, reference: str) -> Workspace | None:
    """Return the workspace of an account by its id or its slug, or None."""
    query = sa.select(workspaces).where(
        workspaces.c.account_id == account_id,
        sa.or_(workspaces.c.id == reference, workspaces.c.slug == reference),
    )
    # A slug may look like another workspace's id: the id wins.
    return await _one(read, query.order_by(workspaces.c.id != reference).limit(1), Workspace)


async def default_workspace(read: Read, account_id: str) -> Workspace | None:
    """Return an account's default workspace, or None."""
    query = sa.select(workspaces).where(
        workspaces.c.account_id == account_id, workspaces.c.is_default
    )
    return await _one(read, query, Workspace)


async def switches(read: Read, workspace_id: str) -> Switches | None:
    """Return what an operator lets a workspace and its account do; None if there is none."""
    names = Switches.__slots__
    both = [sa.and_(accounts.c[name], workspaces.c[name]).label(name) for name in names]
    query = sa.select(*both).join(accounts, accounts.c.id == workspaces.c.account_id)
    row = (await read.execute(query.where(workspaces.c.id == workspace_id))).mappings().first()
    return None if row is None else Switches(**{name: bool(row[name]) for name in names})


async def list_workspaces(read: Read, account_id: str, window: Window) -> Page[Workspace]:
    """Return the workspaces of an account, oldest first."""
    query = (
        sa.select(workspaces)
        .where(workspaces.c.account_id == account_id)
        .order_by(workspaces.c.created_at, workspaces.c.id)
    )
    return await _page(read, query, window, Workspace)


async def save_workspace(write: Write, workspace: Workspace) -> bool:
    """Store what changed of a workspace; False, to be rolled back, where its new slug is taken."""
    changed = sa.update(workspaces).where(workspaces.c.id == workspace.id)
    try:
        await write.execute(changed.values(**asdict(workspace)))
    except IntegrityError:  # the slug is the one thing about a workspace that can collide
        return False
    return True


async def delete_workspace(write: Write, workspace_id: str) -> None:
    """Remove a workspace and the deleted keys that once belonged to it."""
    past = sa.delete(api_keys).where(
        api_keys.c.workspace_id == workspace_id, api_keys.c.deleted_at.is_not(None)
    )
    await write.execute(past)
    await write.execute(sa.delete(workspaces).where(workspaces.c.id == workspace_id))


async def has_keys(read: Read, workspace_id: str) -> bool:
    """Tell whether a workspace still has keys that are not deleted."""
    query = sa.select(api_keys.c.hash).where(api_keys.c.workspace_id == workspace_id, _NOT_DELETED)
    return (await read.execute(query.limit(1))).first() is not None


async def get_user(read: Read, account_id: str, user_id: str) -> User | None:
    """Return a user of an account, or None."""
    query = sa.select(users).where(users.c.account_id == account_id, users.c.id == user_id)
    return await _one(read, query, User)


async def list_users(read: Read, account_id: str, window: Window) -> Page[User]:
    """Return the users of an account, oldest first."""
    query = sa.select(users).where(users.c.account_id == account_id)
    return await _page(read, query.order_by(users.c.created_at, users.c.id), window, User)


async def get_key(read: Read, key_hash: str) -> ApiKey | None:
    """Return a key that is not deleted, or None."""
    query = sa.select(api_keys).where(api_keys.c.hash == key_hash, _NOT_DELETED)
    return await _one(read, query, _key)


async def key_with_text(read: Read, secret_hash: str) -> ApiKey | None:
    """Return the key whose present text has a hash, unless it is deleted."""
    query = sa.select(api_keys).where(api_keys.c.secret_hash == secret_hash, _NOT_DELETED)
    return await _one(read, query, _key)


async def key_of_intern(read: Read, account_id: str, intern_id: str) -> ApiKey | None:
    """Return the first key of an account's intern that is not deleted and never ends, or None."""
    query = _of_intern(sa.select(api_keys), intern_id).where(
        api_keys.c.account_id == account_id, api_keys.c.expires_at.is_(None)
    )
    return await _one(read, query.order_by(api_keys.c.created_at, api_keys.c.hash).limit(1), _key)


async def take_texts(write: Write, intern_id: str, now: datetime) -> Sequence[str]:
    """Forget the texts of an intern's keys; return the keys."""
    taken = _of_intern(sa.update(api_keys), intern_id).values(secret_hash=None, updated_at=now)
    return (await write.execute(taken.returning(api_keys.c.hash))).scalars().all()


async def delete_keys_of_intern(write: Write, intern_id: str, now: datetime) -> Sequence[str]:
    """Mark the keys of an intern as deleted; return them."""
    gone = _of_intern(sa.update(api_keys), intern_id).values(deleted_at=now)
    return (await write.execute(gone.returning(api_keys.c.hash))).scalars().all()


def _of_intern(statement: W, intern_id: str) -> W:
    return statement.where(api_keys.c.intern_id == intern_id, _NOT_DELETED)


async def get_key_ever(read: Read, key_hash: str) -> ApiKey | None:
    """Return a key, deleted or not, or None."""
    return await _one(read, sa.select(api_keys).where(api_keys.c.hash == key_hash), _key)


async def keys_among(read: Read, account_id: str, key_hashes: Collection[str]) -> set[str]:
    """Return those of some hashes that are keys of an account, and not deleted."""
    query = sa.select(api_keys.c.hash).where(
        api_keys.c.account_id == account_id, api_keys.c.hash.in_(key_hashes), _NOT_DELETED
    )
    return set((await read.execute(query)).scalars())


async def list_keys(read: Read, wanted: KeyFilter, window: Window) -> Page[ApiKey]:
    """Return keys, newest first."""
    query = (
        sa.select(api_keys)
        .where(api_keys.c.account_id == wanted.account_id, _NOT_DELETED)
        .order_by(api_keys.c.created_at.desc(), api_keys.c.hash)
    )
    if wanted.workspace_id is not None:
        query = query.where(api_keys.c.workspace_id == wanted.workspace_id)
    if not wanted.include_disabled:
        query = query.where(api_keys.c.disabled.is_(False))
    if wanted.unexpired_at is not None:
        expiry = api_keys.c.expires_at
        query = query.where(sa.or_(expiry.is_(None), expiry > wanted.unexpired_at))
    return await _page(read, query, window, _key)


async def delete_key(write: Write, key_hash: str, now: datetime) -> None:
    """Mark a key as deleted; its row stays, since generations name it."""
    changed = sa.update(api_keys).where(api_keys.c.hash == key_hash)
    await write.execute(changed.values(deleted_at=now))


async def get_policies(read: Read, owners: Mapping[PolicyScope, str]) -> tuple[AccessPolicy, ...]:
    """Return the policies of some owners, in the owners' order; most have none."""
    table = access_policies
    named = [
        sa.and_(table.c.scope == scope, table.c.owner_id == owner)
        for scope, owner in owners.items()
    ]
    rows = (await read.execute(sa.select(table).where(sa.or_(*named)))).mappings()
    found = {row["scope"]: AccessPolicy.from_json(row["scope"], row["policy"]) for row in rows}
    return tuple(found[scope] for scope in owners if scope in found)


async def policies_for(read: Read, key: ApiKey) -> tuple[AccessPolicy, ...]:
    """Return the policies that hold for a key's requests, its payer's last."""
    own = await get_policies(
        read, {"account": key.account_id, "workspace": key.workspace_id, "key": key.hash}
    )
    if key.payer_hash is None:
        return own
    payers = await get_policies(read, {"key": key.payer_hash})
    return (*own, *(PayerPolicy(**asdict(each)) for each in payers))


async def save_policy(
    write: Write, owner_id: str, policy: AccessPolicy, updated_at: datetime
) -> None:
    """Store a policy in place of the one that its owner had."""
    await delete_policy(write, policy.scope, owner_id)
    facts = asdict(policy)
    scope = facts.pop("scope")
    values = {"scope": scope, "owner_id": owner_id, "policy": facts, "updated_at": updated_at}
    await write.execute(sa.insert(access_policies).values(**values))


async def delete_policy(write: Write, scope: PolicyScope, owner_id: str) -> None:
    """Remove a policy, if there is one."""
    table = access_policies
    gone = sa.delete(table).where(table.c.scope == scope, table.c.owner_id == owner_id)
    await write.execute(gone)


async def _one(read: Read, query: sa.Select[Any], make: Callable[..., T]) -> T | None:
    if isinstance(read, Write):
        # What is read in order to be changed, or to be referred to, stays as it is until then.
        # SQLite has one writer and leaves this out.
        query = query.with_for_update(key_share=True)
    row = (await read.execute(query)).mappings().one_or_none()
    return None if row is None else make(**row)


async def _page(
    read: Read, query: sa.Select[Any], window: Window, make: Callable[..., T]
) -> Page[T]:
    counted = sa.select(sa.func.count()).select_from(query.order_by(None).subquery())
    total = (await read.execute(counted)).scalar_one()
    rows = (await read.execute(query.limit(window.limit).offset(window.offset))).mappings()
    return Page(tuple(make(**row) for row in rows), int(total))


def _account(**facts: Any) -> Account:  # noqa: ANN401 - columns of a row
    facts["type"] = AccountType(facts["type"])
    return Account(**facts)


def _key(**facts: Any) -> ApiKey:  # noqa: ANN401 - the same
    del facts["deleted_at"]
    facts["kind"] = KeyKind(facts["kind"])
    return ApiKey(**facts)
