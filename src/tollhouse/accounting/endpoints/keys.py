"""`/keys`: making, listing, changing and revoking keys, with a management key.

Source: the public gateway's key management. `kind`, `operator`, `intern_id` and `account_id` are
ours; its clients ignore them.
"""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from tollhouse.accounting.endpoints.amounts import ExactNumbers
from tollhouse.accounting.endpoints.key_wire import (
    IssuedKeyReply,
    KeyChangeBody,
    KeyPage,
    KeyReply,
    KeysQuery,
    NewKeyBody,
    OneKey,
)
from tollhouse.accounting.endpoints.usage import figures
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import KeyLimit, KeyStanding
from tollhouse.audit.changes import entry_of_change
from tollhouse.audit.types import AuditAction
from tollhouse.identity.access import Managing, ManagingOr401
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import ApiKey, KeyFilter
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.pages import Window
from tollhouse.kernel.wire import Deleted, Reference, refusals
from tollhouse.storage.database import Database

PAGE_SIZE = 100
KeyHash = Annotated[
    Reference, Path(alias="hash", description="The key's SHA-256: 64 lower-case hex digits.")
]


class KeyEndpoints:
    """The endpoints of keys."""

    def __init__(
        self,
        accounting: AccountingService,
        identity: IdentityService,
        database: Database,
        clock: Clock,
    ) -> None:
        """Take what they need."""
        self._accounting = accounting
        self._identity = identity
        self._database = database
        self._clock = clock

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        routes.get("/keys", tags=["Keys"], responses=refusals(400, 401, 404, 429, 500))(
            self.list_keys
        )
        routes.add_api_route(
            "/keys",
            self.create_key,
            methods=["POST"],
            tags=["Keys"],
            status_code=201,
            responses=refusals(400, 401, 403, 404, 429, 500),
            route_class_override=ExactNumbers,
        )
        routes.get("/keys/{hash}", tags=["Keys"], responses=refusals(401, 404, 429, 500))(
            self.get_key
        )
        routes.add_api_route(
            "/keys/{hash}",
            self.change_key,
            methods=["PATCH"],
            tags=["Keys"],
            responses=refusals(400, 401, 403, 404, 409, 429, 500),
            route_class_override=ExactNumbers,
        )
        routes.delete("/keys/{hash}", tags=["Keys"], responses=refusals(401, 403, 404, 429, 500))(
            self.delete_key
        )

    async def list_keys(self, who: ManagingOr401, query: Annotated[KeysQuery, Query()]) -> KeyPage:
        """List the keys of a workspace, newest first, 100 at most."""
        unexpired_at = None if query.include_expired else self._clock.now()
        async with self._database.reading() as read:
            account_id = await self._identity.home(read, who, query.account_id)
            if query.workspace_id is None:
                workspace = await self._identity.default_workspace(read, account_id)
            else:
                workspace = await self._identity.workspace(read, account_id, query.workspace_id)
            wanted = KeyFilter(account_id, workspace.id, query.include_disabled, unexpired_at)
            page = await self._identity.keys(read, wanted, Window(query.offset, PAGE_SIZE))
            standings = await self._accounting.key_standings(read, [key.hash for key in page.items])
        return KeyPage(data=[_reply(key, standings[key.hash]) for key in page.items])

    async def create_key(self, who: Managing, body: NewKeyBody) -> IssuedKeyReply:
        """Make a key. Its text is in this answer and nowhere else."""
        async with self._database.writing() as write:
            account_id = await self._identity.home(write, who, body.account_id)
            issued = await self._identity.create_key(write, who, account_id, body.wanted())
            key, limit = issued.key, body.wanted_limit()
            if limit != KeyLimit():
                await self._accounting.set_key_limit(write, account_id, key.hash, limit)
            entry = entry_of_change(
                AuditAction.KEY_CREATED, who.actor, key.hash, new=_facts(key, limit)
            )
            await self._identity.audit.record(write, account_id, [entry])
            standing = await self._accounting.key_standing(write, key.hash)
        return IssuedKeyReply(data=_reply(key, standing), key=issued.text)

    async def get_key(self, who: ManagingOr401, key_hash: KeyHash) -> OneKey:
        """Show a key."""
        async with self._database.reading() as read:
            key = await self._identity.key(read, who, key_hash)
            standing = await self._accounting.key_standing(read, key_hash)
        return OneKey(data=_reply(key, standing))

    async def change_key(self, who: Managing, key_hash: KeyHash, body: KeyChangeBody) -> OneKey:
        """Change what the body names of a key; in force before the answer."""
        if not body.model_fields_set:
            message = "No update fields provided."
            raise Invalid(message)
        async with self._database.writing() as write:
            found = await self._identity.key(write, who, key_hash)
            key = await self._identity.change_key(
                write,
                who,
                key_hash,
                name=body.name,
                disabled=body.disabled,
                workspace_id=body.workspace_id,
            )
            before = await self._accounting.key_limit(write, key_hash)
            if (limit := body.limit_after(before)) != before:
                await self._accounting.set_key_limit(write, key.account_id, key_hash, limit)
            old, new = _facts(found, before), _facts(key, limit)
            entry = entry_of_change(AuditAction.KEY_CHANGED, who.actor, key_hash, old, new)
            await self._identity.audit.record(write, key.account_id, [entry])
            standing = await self._accounting.key_standing(write, key_hash)
        return OneKey(data=_reply(key, standing))

    async def delete_key(self, who: ManagingOr401, key_hash: KeyHash) -> Deleted:
        """Revoke a key for ever; in force before the answer."""
        async with self._database.writing() as write:
            key = await self._identity.key(write, who, key_hash)
            await self._identity.delete_key(write, who, key_hash)
            entry = entry_of_change(AuditAction.KEY_DELETED, who.actor, key_hash, asdict(key))
            await self._identity.audit.record(write, key.account_id, [entry])
        return Deleted()


def _facts(key: ApiKey, limit: KeyLimit) -> dict[str, Any]:
    return {**asdict(key), **asdict(limit)}


def _reply(key: ApiKey, standing: KeyStanding) -> KeyReply:
    return KeyReply(
        hash=key.hash,
        name=key.name,
        label=key.label,
        kind=key.kind.value,
        operator=key.operator,
        disabled=key.disabled,
        created_at=key.created_at,
        updated_at=key.updated_at,
        last_used_at=standing.usage.last_used_at,
        expires_at=key.expires_at,
        creator_user_id=key.creator_user_id,
        account_id=key.account_id,
        workspace_id=key.workspace_id,
        intern_id=key.intern_id,
        **figures(standing),
    )
