"""`/accounts/{id}/policy` and the like: what requests may reach, and what they may hold. Ours."""

import re
from dataclasses import asdict
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from tollhouse.audit.changes import entry_of_change
from tollhouse.audit.types import AuditAction
from tollhouse.identity.access import Managing, OfAccount
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import PATTERN_NAMES, AccessPolicy, Manager, PolicyScope
from tollhouse.kernel.wire import STORABLE, Body, Reference, Reply, refusals
from tollhouse.storage.database import Database
from tollhouse.storage.transaction import Write

AccountId = Annotated[Reference, Path(description="Id of the account.")]
WorkspaceId = Annotated[Reference, Path(alias="id", description="Id or slug of the workspace.")]
KeyHash = Annotated[
    Reference, Path(alias="hash", description="The key's SHA-256: 64 lower-case hex digits.")
]
Pattern = Annotated[str, Field(min_length=1, max_length=256), STORABLE]
Patterns = Annotated[list[Pattern], Field(max_length=256)]
Slugs = Annotated[list[Pattern], Field(max_length=16)]
_NAMES = "`*` stands for any characters. Null: all of them."
_NAME = re.compile(r"@[A-Za-z][\w-]*")


def _known(pattern: str) -> str:
    if _NAME.fullmatch(pattern) and pattern not in PATTERN_NAMES:
        names = ", ".join(PATTERN_NAMES)
        message = f"is no known name; there are {names} (a * before it makes it a text)"
        raise PydanticCustomError("pattern", "{message}", {"message": message})
    return pattern


Texts = Annotated[list[Annotated[Pattern, AfterValidator(_known)]], Field(max_length=256)]


class PolicyBody(Body):
    """A policy in place of the one before; an empty one takes it away."""

    allowed_models: Annotated[Patterns | None, Field(description=f"Ids of models. {_NAMES}")] = None
    blocked_models: Patterns = Field(default_factory=list[str])
    """Ids of models that may not be asked."""
    allowed_providers: Annotated[
        Patterns | None, Field(description=f"Slugs of providers. {_NAMES}")
    ] = None
    blocked_providers: Patterns = Field(default_factory=list[str])
    """Slugs of providers that may not be asked."""
    allowed_endpoints: Annotated[
        Patterns | None,
        Field(description=f"Endpoints as slug:model, the provider's name of it. {_NAMES}"),
    ] = None
    blocked_endpoints: Patterns = Field(default_factory=list[str])
    """Endpoints that may not be asked."""
    data_collection: Literal["allow", "deny"] = "allow"
    """Whether providers may be asked that keep what they are sent."""
    patterns: Texts = Field(default_factory=list[str])
    """Texts that no request may hold, in any case; `*` stands for anything between. `@email`,
    `@credit_card`, `@iban` and `@api_key` stand for what looks like one."""
    guardrails: Slugs = Field(default_factory=list[str])
    """Guardrails of the server's settings, by slug: each must let a request pass."""

    def policy(self, scope: PolicyScope) -> AccessPolicy:
        """Return the same for the service."""
        return AccessPolicy(
            scope=scope,
            allowed_models=_tuple(self.allowed_models),
            blocked_models=tuple(self.blocked_models),
            allowed_providers=_tuple(self.allowed_providers),
            blocked_providers=tuple(self.blocked_providers),
            allowed_endpoints=_tuple(self.allowed_endpoints),
            blocked_endpoints=tuple(self.blocked_endpoints),
            data_collection=self.data_collection,
            patterns=tuple(self.patterns),
            guardrails=tuple(self.guardrails),
        )


class PolicyReply(Reply):
    """A policy."""

    allowed_models: list[str] | None
    """Ids of models that may be asked; null for all."""
    blocked_models: list[str]
    """Ids of models that may not."""
    allowed_providers: list[str] | None
    """Slugs of providers that may be asked; null for all."""
    blocked_providers: list[str]
    """Slugs of providers that may not."""
    allowed_endpoints: list[str] | None
    """Endpoints (slug:model) that may be asked; null for all."""
    blocked_endpoints: list[str]
    """Endpoints that may not."""
    data_collection: str
    """allow or deny: whether providers may be asked that keep what they are sent."""
    patterns: list[str]
    """Texts that no request may hold."""
    guardrails: list[str]
    """Guardrails that must let a request pass, by slug."""


class OnePolicy(Reply):
    """The envelope of a policy."""

    data: PolicyReply
    """The policy."""


class PolicyEndpoints:
    """The endpoints of policies."""

    def __init__(self, service: IdentityService, database: Database) -> None:
        """Take what they need."""
        self._service = service
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add them to a router."""
        refused = refusals(400, 401, 403, 404, 500)
        account, workspace, key = (
            "/accounts/{account_id}/policy",
            "/workspaces/{id}/policy",
            "/keys/{hash}/policy",
        )
        routes.get(account, tags=["Accounts"], responses=refused)(self.get_account_policy)
        routes.put(account, tags=["Accounts"], responses=refused)(self.set_account_policy)
        routes.get(workspace, tags=["Workspaces"], responses=refused)(self.get_workspace_policy)
        routes.put(workspace, tags=["Workspaces"], responses=refused)(self.set_workspace_policy)
        routes.get(key, tags=["Keys"], responses=refused)(self.get_key_policy)
        routes.put(key, tags=["Keys"], responses=refused)(self.set_key_policy)

    async def get_account_policy(self, who: Managing, account_id: AccountId) -> OnePolicy:
        """Show the policy of an account; one without a rule if it has none."""
        async with self._database.reading() as read:
            return _reply(await self._service.policy(read, who, "account", account_id))

    async def set_account_policy(
        self, who: Managing, account_id: AccountId, body: PolicyBody
    ) -> OnePolicy:
        """Set the policy of an account; in force before the answer."""
        async with self._database.writing() as write:
            await self._set(write, who, account_id, account_id, body.policy("account"))
        return _reply(body.policy("account"))

    async def get_workspace_policy(
        self, who: Managing, workspace: WorkspaceId, account_id: OfAccount = None
    ) -> OnePolicy:
        """Show the policy of a workspace; one without a rule if it has none."""
        async with self._database.reading() as read:
            return _reply(await self._service.policy(read, who, "workspace", workspace, account_id))

    async def set_workspace_policy(
        self,
        who: Managing,
        workspace: WorkspaceId,
        body: PolicyBody,
        account_id: OfAccount = None,
    ) -> OnePolicy:
        """Set the policy of a workspace; in force before the answer."""
        async with self._database.writing() as write:
            home = await self._service.home(write, who, account_id)
            found = await self._service.workspace(write, home, workspace)
            policy = body.policy("workspace")
            await self._set(write, who, home, found.id, policy)
        return _reply(policy)

    async def get_key_policy(self, who: Managing, key_hash: KeyHash) -> OnePolicy:
        """Show the policy of a key; one without a rule if it has none."""
        async with self._database.reading() as read:
            return _reply(await self._service.policy(read, who, "key", key_hash))

    async def set_key_policy(self, who: Managing, key_hash: KeyHash, body: PolicyBody) -> OnePolicy:
        """Set the policy of a key; in force before the answer."""
        async with self._database.writing() as write:
            key = await self._service.key(write, who, key_hash)
            await self._set(write, who, key.account_id, key_hash, body.policy("key"))
        return _reply(body.policy("key"))

    async def _set(
        self, write: Write, who: Manager, account_id: str, owner_id: str, policy: AccessPolicy
    ) -> None:
        service = self._service
        before = await service.policy(write, who, policy.scope, owner_id, account_id)
        await service.set_policy(write, who, owner_id, policy, account_id)
        action = AuditAction(f"{policy.scope}_policy_changed")
        entry = entry_of_change(action, who.actor, owner_id, asdict(before), asdict(policy))
        await service.audit.record(write, account_id, [entry])


def _tuple(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def _reply(policy: AccessPolicy) -> OnePolicy:
    facts = {name: value for name, value in asdict(policy).items() if name != "scope"}
    return OnePolicy(data=PolicyReply.model_validate(facts))
