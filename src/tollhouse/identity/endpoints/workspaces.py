"""`/workspaces`: the scopes inside an account; `/accounts/{id}/policy` and the like.

A policy says what requests may reach, and what they may hold. Ours.

Source: the public gateway's workspace operations; a workspace is named by its id or its slug.
"""

import re
import uuid
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from tollhouse.audit.types import AuditAction
from tollhouse.identity.callers import KeyHash, Managing, ManagingOr401, OfAccount, WorkspaceId
from tollhouse.identity.endpoints.accounts import AccountId, IdentityEndpoints
from tollhouse.identity.types import PATTERN_NAMES, AccessPolicy, Manager, PolicyScope, Workspace
from tollhouse.kernel.wire import (
    OTHER_ACCOUNT,
    STORABLE,
    AccountPageQuery,
    Deleted,
    Name,
    Omittable,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    endpoint,
)
from tollhouse.storage.database import Write

Confirmed = Annotated[bool, Query(description="Must be true to delete the default workspace.")]
Slug = Annotated[str, Field(min_length=1, max_length=50, pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$")]
Description = Annotated[str, Field(max_length=500), STORABLE]
ModelId = Annotated[str, Field(min_length=1, max_length=200), STORABLE]
ProviderSort = Literal["price", "throughput", "latency", "exacto"]
SamplingRate = Annotated[float, Field(ge=0.0001, le=1)]
ServerTool = Annotated[str, Field(max_length=100), STORABLE]
ServerTools = Annotated[list[ServerTool], Field(max_length=100)]
KeyNumbers = Annotated[list[int], Field(max_length=1000)]


class WorkspaceReply(ResponseModel):
    """A workspace."""

    # Its preferences, with what holds where nothing was set. They are kept for the clients that
    # set them; `plain_http`, `include_byok_in_budgets` and `default_text_model` have an effect.
    default_text_model: str | None = None
    """The model of interns that have none of their own."""
    default_image_model: str | None = None
    """Model for images where a request names none. Kept; has no effect yet."""
    default_provider_sort: str | None = None
    """How providers are sorted: price, throughput, latency or exacto. Kept; no effect yet."""
    is_observability_io_logging_enabled: bool = False
    """Whether requests and replies are kept for the workspace. Kept; has no effect yet."""
    is_observability_broadcast_enabled: bool = False
    """Whether traces are sent to other systems. Kept; has no effect yet."""
    is_data_discount_logging_enabled: bool = False
    """Whether data may be used for a discount. Kept; has no effect."""
    io_logging_sampling_rate: float = 1.0
    """Which share of requests is kept, 0.0001 to 1. Kept; has no effect yet."""
    io_logging_api_key_ids: list[int] | None = None
    """Keys whose requests are kept; null for all. Kept; has no effect yet."""
    disabled_server_tools: list[str] | None = None
    """Server tools that requests may not use; null for none. Kept; has no effect yet."""
    include_byok_in_budgets: bool = False
    """Whether own-provider-key use counts towards budgets."""
    plain_http: bool = False
    """Whether its interns and programs may reach hosts without TLS, where no secret is bound to
    them. Ours."""

    id: str
    """UUID."""
    default_guardrail_id: str
    """UUID derived from the workspace's own; there is no guardrail behind it."""
    name: str
    """What people call it."""
    slug: str
    """Its name in addresses."""
    description: str | None
    """What it is for."""
    intern_programme: bool
    """Whether it may have interns and vaults, where its account may."""
    vault_writes: bool
    """Whether its secrets may be changed, where those of its account may."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""
    created_by: str | None
    """The user whose key made it, where known."""


class WorkspaceFacts(RequestModel):
    """What may be set of a workspace besides its name and slug."""

    description: Description | None = None
    """What it is for."""
    default_text_model: ModelId | None = None
    """The model of interns that have none of their own."""
    default_image_model: ModelId | None = None
    """Model for images where a request names none. Kept; has no effect yet."""
    default_provider_sort: ProviderSort | None = None
    """How providers are sorted. Kept; has no effect yet."""
    is_observability_io_logging_enabled: Omittable[bool] = None
    """Whether requests and replies are kept for the workspace. Kept; has no effect yet."""
    is_observability_broadcast_enabled: Omittable[bool] = None
    """Whether traces are sent to other systems. Kept; has no effect yet."""
    is_data_discount_logging_enabled: Omittable[bool] = None
    """Whether data may be used for a discount. Kept; has no effect."""
    io_logging_sampling_rate: Omittable[SamplingRate] = None
    """Which share of requests is kept. Kept; has no effect yet."""
    io_logging_api_key_ids: KeyNumbers | None = None
    """Keys whose requests are kept; null for all. Kept; has no effect yet."""
    disabled_server_tools: ServerTools | None = None
    """Server tools that requests may not use; empty or null for none. Kept; no effect yet."""
    plain_http: Omittable[bool] = None
    """Whether its interns and programs may reach hosts without TLS, where no secret is bound to
    them; sessions that begin from then on heed it. Ours."""

    def facts(self) -> dict[str, object]:
        """Return what the body names; an empty list of tools as none at all."""
        facts: dict[str, object] = self.model_dump(exclude_unset=True, exclude={"account_id"})
        if facts.get("disabled_server_tools") == []:
            facts["disabled_server_tools"] = None
        return facts


class NewWorkspaceBody(WorkspaceFacts):
    """A workspace to make."""

    name: Name
    """What people call it."""
    slug: Slug
    """Its name in addresses: lower-case words with hyphens between them."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None


class WorkspaceChangeBody(WorkspaceFacts):
    """What to change of a workspace; what is left out stays."""

    name: Omittable[Name] = None
    """What people call it."""
    slug: Omittable[Slug] = None
    """Its name in addresses: lower-case words with hyphens between them."""
    intern_programme: Omittable[bool] = None
    """Whether it may have interns and vaults, where its account may. For an operator alone."""
    vault_writes: Omittable[bool] = None
    """Whether its secrets may be changed, where its account's may. For an operator alone."""


class OneWorkspace(ResponseModel):
    """The envelope of one workspace."""

    data: WorkspaceReply
    """The workspace."""


class WorkspacePage(ResponseModel):
    """Part of the list of workspaces."""

    data: list[WorkspaceReply]
    """Oldest first."""
    total_count: int
    """How many there are altogether."""


class WorkspaceEndpoints(IdentityEndpoints):
    """The endpoints of workspaces."""

    @endpoint("GET", "/workspaces", "Workspaces", 400, 401, 404, 500)
    async def list_workspaces(
        self, who: ManagingOr401, query: Annotated[AccountPageQuery, Query()]
    ) -> WorkspacePage:
        """List the workspaces of an account."""
        async with self.database.reading() as read:
            account_id = await self.service.home(read, who, query.account_id)
            page = await self.service.workspaces(read, account_id, query.window())
        return WorkspacePage(data=[_reply(each) for each in page.items], total_count=page.total)

    @endpoint("POST", "/workspaces", "Workspaces", 400, 401, 403, 404, 500)
    async def create_workspace(self, who: Managing, body: NewWorkspaceBody) -> OneWorkspace:
        """Make a workspace."""
        facts = body.facts()
        async with self.database.writing() as write:
            account_id = await self.service.home(write, who, body.account_id)
            made = await self.service.create_workspace(write, account_id, facts, who.user_id)
            action = AuditAction.WORKSPACE_CREATED
            await self.service.audit.record_change(
                write, account_id, action, who.actor, made.id, new=_facts(made)
            )
        return OneWorkspace(data=_reply(made))

    @endpoint("GET", "/workspaces/{id}", "Workspaces", 400, 401, 403, 404, 500)
    async def get_workspace(
        self, who: Managing, workspace: WorkspaceId, account_id: OfAccount = None
    ) -> OneWorkspace:
        """Show a workspace."""
        async with self.database.reading() as read:
            home = await self.service.home(read, who, account_id)
            return OneWorkspace(data=_reply(await self.service.workspace(read, home, workspace)))

    @endpoint("PATCH", "/workspaces/{id}", "Workspaces", 400, 401, 403, 404, 500)
    async def change_workspace(
        self,
        who: Managing,
        workspace: WorkspaceId,
        body: WorkspaceChangeBody,
        account_id: OfAccount = None,
    ) -> OneWorkspace:
        """Change what the body names of a workspace; the rest stays."""
        async with self.database.writing() as write:
            home = await self.service.home(write, who, account_id)
            before = await self.service.workspace(write, home, workspace)
            changed = await self.service.change_workspace(write, who, home, workspace, body.facts())
            action, old, new = AuditAction.WORKSPACE_CHANGED, _facts(before), _facts(changed)
            await self.service.audit.record_change(
                write, home, action, who.actor, changed.id, old, new
            )
        return OneWorkspace(data=_reply(changed))

    @endpoint("DELETE", "/workspaces/{id}", "Workspaces", 400, 401, 403, 404, 500)
    async def delete_workspace(
        self,
        who: Managing,
        workspace: WorkspaceId,
        confirm_default_workspace_deletion: Confirmed = False,  # noqa: FBT002 - a query parameter
        account_id: OfAccount = None,
    ) -> Deleted:
        """Remove a workspace. It must have no API keys; the default one must be confirmed."""
        async with self.database.writing() as write:
            home = await self.service.home(write, who, account_id)
            before = await self.service.workspace(write, home, workspace)
            await self.service.delete_workspace(
                write, who, home, workspace, default_confirmed=confirm_default_workspace_deletion
            )
            await self.service.audit.record_change(
                write, home, AuditAction.WORKSPACE_DELETED, who.actor, before.id, _facts(before)
            )
        return Deleted()


def _facts(workspace: Workspace) -> dict[str, Any]:
    facts = asdict(workspace)
    return {"workspace_id": workspace.id, **facts.pop("preferences"), **facts}


def _reply(workspace: Workspace) -> WorkspaceReply:
    guardrail = uuid.uuid5(uuid.UUID(workspace.id), "default guardrail")
    facts = {**workspace.preferences, **asdict(workspace), "default_guardrail_id": str(guardrail)}
    return WorkspaceReply.model_validate(facts)


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


class PolicyBody(RequestModel):
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
        return AccessPolicy.from_json(scope, self.model_dump())


class PolicyReply(ResponseModel):
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


class OnePolicy(ResponseModel):
    """The envelope of a policy."""

    data: PolicyReply
    """The policy."""


class PolicyEndpoints(IdentityEndpoints):
    """The endpoints of policies."""

    @endpoint("GET", "/accounts/{account_id}/policy", "Accounts", 400, 401, 403, 404, 500)
    async def get_account_policy(self, who: Managing, account_id: AccountId) -> OnePolicy:
        """Show the policy of an account; one without a rule if it has none."""
        async with self.database.reading() as read:
            return _policy_reply(await self.service.policy(read, who, "account", account_id))

    @endpoint("PUT", "/accounts/{account_id}/policy", "Accounts", 400, 401, 403, 404, 500)
    async def set_account_policy(
        self, who: Managing, account_id: AccountId, body: PolicyBody
    ) -> OnePolicy:
        """Set the policy of an account; in force before the answer."""
        async with self.database.writing() as write:
            return await self._set(write, who, account_id, account_id, body.policy("account"))

    @endpoint("GET", "/workspaces/{id}/policy", "Workspaces", 400, 401, 403, 404, 500)
    async def get_workspace_policy(
        self, who: Managing, workspace: WorkspaceId, account_id: OfAccount = None
    ) -> OnePolicy:
        """Show the policy of a workspace; one without a rule if it has none."""
        async with self.database.reading() as read:
            return _policy_reply(
                await self.service.policy(read, who, "workspace", workspace, account_id)
            )

    @endpoint("PUT", "/workspaces/{id}/policy", "Workspaces", 400, 401, 403, 404, 500)
    async def set_workspace_policy(
        self, who: Managing, workspace: WorkspaceId, body: PolicyBody, account_id: OfAccount = None
    ) -> OnePolicy:
        """Set the policy of a workspace; in force before the answer."""
        async with self.database.writing() as write:
            home = await self.service.home(write, who, account_id)
            found = await self.service.workspace(write, home, workspace)
            return await self._set(write, who, home, found.id, body.policy("workspace"))

    @endpoint("GET", "/keys/{hash}/policy", "Keys", 400, 401, 403, 404, 500)
    async def get_key_policy(self, who: Managing, key_hash: KeyHash) -> OnePolicy:
        """Show the policy of a key; one without a rule if it has none."""
        async with self.database.reading() as read:
            return _policy_reply(await self.service.policy(read, who, "key", key_hash))

    @endpoint("PUT", "/keys/{hash}/policy", "Keys", 400, 401, 403, 404, 500)
    async def set_key_policy(self, who: Managing, key_hash: KeyHash, body: PolicyBody) -> OnePolicy:
        """Set the policy of a key; in force before the answer."""
        async with self.database.writing() as write:
            key = await self.service.key(write, who, key_hash)
            return await self._set(write, who, key.account_id, key_hash, body.policy("key"))

    async def _set(
        self, write: Write, who: Manager, account_id: str, owner_id: str, policy: AccessPolicy
    ) -> OnePolicy:
        service = self.service
        before = await service.policy(write, who, policy.scope, owner_id, account_id)
        await service.set_policy(write, who, owner_id, policy, account_id)
        action = AuditAction(f"{policy.scope}_policy_changed")
        await service.audit.record_change(
            write, account_id, action, who.actor, owner_id, asdict(before), asdict(policy)
        )
        return _policy_reply(policy)


def _policy_reply(policy: AccessPolicy) -> OnePolicy:
    return OnePolicy(data=PolicyReply.model_validate(policy))
