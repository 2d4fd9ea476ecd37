"""`/keys`: making, listing, changing and revoking keys; `GET /key`: what a key may read of itself.

Source: the public gateway's key management and key information. `kind`, `operator`, `intern_id` and
`account_id` are ours; its clients ignore them. They want every field of `GET /key`, also those that
have no meaning here (`rate_limit`, `allowed_data_regions`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from tollhouse.accounting.endpoints.shared import (
    Credits,
    CreditsOrNone,
    Endpoints,
    Limit,
    budget_facts,
)
from tollhouse.accounting.limits import Budget, KeyStatus, effective_budget
from tollhouse.accounting.types import BudgetScope, KeyLimit, Reset
from tollhouse.audit.types import AuditAction
from tollhouse.identity.callers import HoldingKey, KeyHash, Managing, ManagingOr401
from tollhouse.identity.types import ApiKey, KeyFilter, KeyKind, NewKey
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.pages import Window
from tollhouse.kernel.wire import (
    MOST_SKIPPED,
    OTHER_ACCOUNT,
    STORABLE,
    Deleted,
    Omittable,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    UtcTime,
    endpoint,
)


class UsageReply(ResponseModel):
    """A key's limits and counters, in credits; days, weeks (from Monday) and months are UTC."""

    limit: CreditsOrNone
    """Most credits that the key may use in one window of `limit_reset`; null: no limit."""
    limit_reset: str | None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    limit_remaining: CreditsOrNone
    """What is left of the limit; 0 where more was used; null: no limit."""
    include_byok_in_limit: bool
    """Whether own-provider-key use counts towards the limit."""
    usage: Credits
    """Credits used over all time."""
    usage_daily: Credits
    """Credits used in the current day."""
    usage_weekly: Credits
    """Credits used in the current week."""
    usage_monthly: Credits
    """Credits used in the current month."""
    byok_usage: Credits
    """Own-provider-key use over all time."""
    byok_usage_daily: Credits
    """Own-provider-key use in the current day."""
    byok_usage_weekly: Credits
    """Own-provider-key use in the current week."""
    byok_usage_monthly: Credits
    """Own-provider-key use in the current month."""


def _usage_facts(status: KeyStatus) -> dict[str, Any]:
    """Return a key's limits and counters by their names on the wire."""
    limit, usage = status.limit, status.usage
    facts: dict[str, Any] = {
        "limit": limit.limit_nano,
        "limit_reset": limit.reset,
        "limit_remaining": status.remaining_nano,
        "include_byok_in_limit": limit.include_byok,
        "last_used_at": usage.last_used_at,
    }
    for period, spend in (
        ("", usage.total),
        ("_daily", usage.daily),
        ("_weekly", usage.weekly),
        ("_monthly", usage.monthly),
    ):
        facts[f"usage{period}"] = spend.usage_nano
        facts[f"byok_usage{period}"] = spend.byok_usage_nano
    return facts


class FreeRequestsReply(ResponseModel):
    """The account's requests to free models in the current UTC day."""

    used: int
    """How many replies of free models were booked today."""
    limit: int
    """The ceiling of the account's tier."""
    remaining: int
    """What is left of the ceiling."""


class RateLimitReply(ResponseModel):
    """An old field that clients require and ignore."""

    requests: int = -1
    """Always -1."""
    interval: str = "10s"
    """Always 10s."""
    note: str = "This field is deprecated and safe to ignore."
    """Says that the field is deprecated."""


class BudgetReply(ResponseModel):
    """A budget that requests with the key draw on."""

    scope: str
    """What the budget belongs to: member, the keys of the user who made this one; workspace; or
    key_limit, the key's own limit."""
    limit_usd: Credits
    """How many credits may be spent of it before it starts anew."""
    spend_usd: Credits
    """What was spent of it since it last started anew."""
    remaining_usd: Credits
    """What is left of it; negative where more was spent."""
    reset_interval: str | None
    """When it starts anew: daily, weekly, monthly; null: never."""
    resets_at: SentTime | None
    """When that is next; null: never."""
    include_byok: bool
    """Whether own-provider-key use counts."""
    budget_id: str | None
    """UUID of a workspace's; null for all others."""
    guardrail_id: str | None = None
    """Always null."""


class OwnKeyData(UsageReply):
    """A key as it sees itself."""

    label: str
    """The key's text, masked."""
    is_free_tier: bool
    """True until the account's first purchase of credits; a refund changes nothing about it."""
    free_model_daily_requests: FreeRequestsReply
    """The account's requests to free models in the current UTC day."""
    rate_limit: RateLimitReply = RateLimitReply()
    """Deprecated."""
    is_management_key: bool
    """Whether it is a management key."""
    is_provisioning_key: bool
    """Deprecated: the same as is_management_key."""
    creator_user_id: str | None
    """The user who made it, where known."""
    organization_id: str
    """UUID of the account."""
    workspace_id: str
    """UUID of the workspace."""
    allowed_data_regions: Sequence[str] = ("global",)
    """Where requests may be processed."""
    budgets: Sequence[BudgetReply]
    """The budgets that its requests draw on, in the order in which they are enforced."""
    effective_budget: BudgetReply | None
    """The budget that will refuse first: one that is spent, or else the one with the least left;
    null where there is none."""
    expires_at: SentTime | None
    """When it stops working; null: never."""


class OwnKeyReply(ResponseModel):
    """The envelope of the calling key."""

    data: OwnKeyData
    """The key."""


def _budget(budget: Budget) -> BudgetReply:
    shown_id = budget.id if budget.scope is BudgetScope.WORKSPACE else None
    return BudgetReply(scope=budget.scope, budget_id=shown_id, **budget_facts(budget))


def _unsupported(value: object) -> object:
    # It is refused instead of stored, so that nobody relies on it.
    if value is not None:
        raise PydanticCustomError("unsupported", "is not supported, so it cannot be set")
    return value


Name = Annotated[str, Field(min_length=1), STORABLE]
LimitReset = Literal["daily", "weekly", "monthly"] | None
External = Annotated[dict[str, Any] | None, AfterValidator(_unsupported)]


class KeysQuery(BaseModel):
    """Which keys are wanted."""

    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many to skip.")
    include_disabled: bool = Field(default=False, description="Show disabled keys too.")
    include_expired: bool = Field(default=False, description="Show expired keys too.")
    workspace_id: Reference | None = Field(
        default=None, description="Id or slug of the workspace; the default one unless given."
    )
    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


class NewKeyBody(RequestModel):
    """A key to make."""

    name: Name
    """What people call it."""
    limit: Limit = None
    """Most credits that it may use, exact to nine decimals, as a number or a text; 0 leaves it the
    free models, null sets no limit."""
    limit_reset: LimitReset = None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    include_byok_in_limit: bool = False
    """Whether own-provider-key use counts towards the limit."""
    expires_at: UtcTime | None = None
    """When it stops working, in UTC with seconds; null: never."""
    creator_user_id: Reference | None = None
    """The user who makes it."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of its workspace; the default one unless given."""
    external: External = None
    """An identity at a partner. Not supported: only null is accepted."""
    kind: Literal["api", "management"] = "api"
    """What it is for: inference, or management. An intern's own key is made when it boots."""
    operator: bool = False
    """Whether a management key runs the installation; only an operator can make one."""
    account_id: Annotated[Reference | None, Field(description=OTHER_ACCOUNT)] = None

    def wanted(self) -> NewKey:
        """Return the same for the service."""
        names = {"name", "operator", "workspace_id", "creator_user_id", "expires_at"}
        return NewKey(kind=KeyKind(self.kind), **self.model_dump(include=names))

    def wanted_limit(self) -> KeyLimit:
        """Return what it may use, for the service."""
        return KeyLimit(self.limit, _reset(self.limit_reset), self.include_byok_in_limit)


class KeyChangeBody(RequestModel):
    """What to change of a key, at least one thing; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    name: Omittable[Name] = None
    """What people call it."""
    disabled: Omittable[bool] = None
    """Whether it is refused from now on."""
    workspace_id: Omittable[Reference] = None
    """Id or slug of the workspace to move it to."""
    limit: Limit = None
    """Most credits that it may use, exact to nine decimals, as a number or a text; 0 leaves it the
    free models, null takes the limit away."""
    limit_reset: LimitReset = None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    include_byok_in_limit: Omittable[bool] = None
    """Whether own-provider-key use counts towards the limit."""

    def limit_after(self, before: KeyLimit) -> KeyLimit:
        """Return what the key may use once this is done, for the service."""
        given = self.model_fields_set
        include_byok = self.include_byok_in_limit
        return KeyLimit(
            self.limit if "limit" in given else before.limit_nano,
            _reset(self.limit_reset) if "limit_reset" in given else before.reset,
            before.include_byok if include_byok is None else include_byok,
        )


def _reset(name: LimitReset) -> Reset | None:
    return None if name is None else Reset(name)


class KeyReply(UsageReply):
    """A key."""

    hash: str
    """Its SHA-256: 64 lower-case hex digits."""
    name: str
    """What people call it."""
    label: str
    """Its text, masked."""
    kind: str
    """What it is for: api, management or intern."""
    operator: bool
    """Whether it runs the installation."""
    disabled: bool
    """Whether it is refused."""
    created_at: SentTime
    """When it was made."""
    updated_at: SentTime | None
    """When it was last changed; null if never."""
    last_used_at: SentTime | None
    """When a reply was last booked on it; null if never."""
    expires_at: SentTime | None
    """When it stops working; null: never."""
    creator_user_id: str | None
    """The user who made it, where known."""
    external_user: str | None = None
    """Always null."""
    account_id: str
    """UUID of its account."""
    workspace_id: str
    """UUID of its workspace."""
    intern_id: str | None
    """The intern of an intern's key."""


class OneKey(ResponseModel):
    """The envelope of one key."""

    data: KeyReply
    """The key."""


class IssuedKeyReply(OneKey):
    """A new key with its text."""

    key: str
    """The key's text, shown this once."""


class KeyPage(ResponseModel):
    """Part of the list of keys."""

    data: list[KeyReply]
    """Newest first."""


PAGE_SIZE = 100


class KeyEndpoints(Endpoints):
    """The endpoints of keys."""

    @endpoint("GET", "/key", "Keys", 401, 403, 500)
    async def get_own_key(self, subject: HoldingKey) -> OwnKeyReply:
        """Show the calling key, of whatever kind, with its counters."""
        async with self.database.reading() as read:
            key = await self.identity.own_key(read, subject)
            status = await self.accounting.key_status(read, subject.key_hash)
            shared = await self.accounting.budgets.budgets_of_key(
                read, subject.account_id, subject.key_hash
            )
            credits_ = await self.accounting.credits(read, subject.account_id)
            free = await self.accounting.free_requests(read, subject.account_id)
        manages = key.kind is KeyKind.MANAGEMENT
        budgets = [*(each.budget for each in shared), *status.budgets]
        first = effective_budget(budgets)
        data = OwnKeyData(
            label=key.label,
            is_free_tier=credits_.purchased_nano == 0,
            free_model_daily_requests=FreeRequestsReply.model_validate(free),
            is_management_key=manages,
            is_provisioning_key=manages,
            creator_user_id=key.creator_user_id,
            organization_id=key.account_id,
            workspace_id=key.workspace_id,
            budgets=[_budget(each) for each in budgets],
            effective_budget=None if first is None else _budget(first),
            expires_at=key.expires_at,
            **_usage_facts(status),
        )
        return OwnKeyReply(data=data)

    @endpoint("GET", "/keys", "Keys", 400, 401, 404, 429, 500)
    async def list_keys(self, who: ManagingOr401, query: Annotated[KeysQuery, Query()]) -> KeyPage:
        """List the keys of a workspace, newest first, 100 at most."""
        unexpired_at = None if query.include_expired else self.clock.now()
        async with self.reading(who, query.account_id) as (read, account_id):
            if query.workspace_id is None:
                workspace = await self.identity.default_workspace(read, account_id)
            else:
                workspace = await self.identity.workspace(read, account_id, query.workspace_id)
            wanted = KeyFilter(account_id, workspace.id, query.include_disabled, unexpired_at)
            page = await self.identity.keys(read, wanted, Window(query.offset, PAGE_SIZE))
            statuses = await self.accounting.key_statuses(read, [key.hash for key in page.items])
        return KeyPage(data=[_key_reply(key, statuses[key.hash]) for key in page.items])

    @endpoint("POST", "/keys", "Keys", 400, 401, 403, 404, 429, 500)
    async def create_key(self, who: Managing, body: NewKeyBody) -> IssuedKeyReply:
        """Make a key. Its text is in this answer and nowhere else."""
        async with self.database.writing() as write:
            account_id = await self.identity.home(write, who, body.account_id)
            issued = await self.identity.create_key(write, who, account_id, body.wanted())
            key, limit = issued.key, body.wanted_limit()
            if limit != KeyLimit():
                await self.accounting.set_key_limit(write, account_id, key.hash, limit)
            await self.identity.audit.record_change(
                write,
                account_id,
                AuditAction.KEY_CREATED,
                who.actor,
                key.hash,
                new=_facts(key, limit),
            )
            status = await self.accounting.key_status(write, key.hash)
        return IssuedKeyReply(data=_key_reply(key, status), key=issued.text)

    @endpoint("GET", "/keys/{hash}", "Keys", 401, 404, 429, 500)
    async def get_key(self, who: ManagingOr401, key_hash: KeyHash) -> OneKey:
        """Show a key."""
        async with self.database.reading() as read:
            key = await self.identity.key(read, who, key_hash)
            status = await self.accounting.key_status(read, key_hash)
        return OneKey(data=_key_reply(key, status))

    @endpoint("PATCH", "/keys/{hash}", "Keys", 400, 401, 403, 404, 409, 429, 500)
    async def change_key(self, who: Managing, key_hash: KeyHash, body: KeyChangeBody) -> OneKey:
        """Change what the body names of a key; in force before the answer."""
        if not body.model_fields_set:
            raise Invalid("No update fields provided.")
        async with self.database.writing() as write:
            found = await self.identity.key(write, who, key_hash)
            key = await self.identity.change_key(
                write,
                who,
                key_hash,
                name=body.name,
                disabled=body.disabled,
                workspace_id=body.workspace_id,
            )
            before = (await self.accounting.key_status(write, key_hash)).limit
            if key.workspace_id != found.workspace_id:
                self.accounting.key_moved(write, key.account_id)
            if (limit := body.limit_after(before)) != before:
                await self.accounting.set_key_limit(write, key.account_id, key_hash, limit)
            old, new = _facts(found, before), _facts(key, limit)
            await self.identity.audit.record_change(
                write, key.account_id, AuditAction.KEY_CHANGED, who.actor, key_hash, old, new
            )
            status = await self.accounting.key_status(write, key_hash)
        return OneKey(data=_key_reply(key, status))

    @endpoint("DELETE", "/keys/{hash}", "Keys", 401, 403, 404, 429, 500)
    async def delete_key(self, who: ManagingOr401, key_hash: KeyHash) -> Deleted:
        """Revoke a key for ever; in force before the answer."""
        async with self.database.writing() as write:
            key = await self.identity.key(write, who, key_hash)
            await self.identity.delete_key(write, who, key_hash)
            await self.identity.audit.record_change(
                write, key.account_id, AuditAction.KEY_DELETED, who.actor, key_hash, asdict(key)
            )
        return Deleted()


def _facts(key: ApiKey, limit: KeyLimit) -> dict[str, Any]:
    return {**asdict(key), **asdict(limit)}


def _key_reply(key: ApiKey, status: KeyStatus) -> KeyReply:
    return KeyReply(**asdict(key), **_usage_facts(status))
