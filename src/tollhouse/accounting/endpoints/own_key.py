"""`GET /key`: what a key may read about itself.

Source: the public gateway's key information. Its clients want every field of it, also those that
have no meaning here (`rate_limit`, `allowed_data_regions`).
"""

from collections.abc import Sequence

from fastapi import APIRouter

from tollhouse.accounting.budgets import effective_budget
from tollhouse.accounting.endpoints.usage import UsageReply, figures
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import Budget
from tollhouse.identity.access import HoldingKey
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reply, SentTime, refusals
from tollhouse.storage.database import Database


class FreeRequestsReply(Reply):
    """The account's requests to free models in the current UTC day."""

    used: int
    """How many replies of free models were booked today."""
    limit: int
    """The ceiling of the account's tier."""
    remaining: int
    """What is left of the ceiling."""


class RateLimitReply(Reply):
    """An old field that clients require and ignore."""

    requests: int = -1
    """Always -1."""
    interval: str = "10s"
    """Always 10s."""
    note: str = "This field is deprecated and safe to ignore."
    """Says that the field is deprecated."""


class BudgetReply(Reply):
    """A budget that requests with the key draw on."""

    scope: str
    """What the budget belongs to: key_limit, the key's own limit."""
    limit_usd: float
    """How many credits may be spent of it before it starts anew."""
    spend_usd: float
    """What was spent of it since it last started anew."""
    remaining_usd: float
    """What is left of it; negative where more was spent."""
    reset_interval: str | None
    """When it starts anew: daily, weekly, monthly; null: never."""
    resets_at: SentTime | None
    """When that is next; null: never."""
    include_byok: bool
    """Whether own-provider-key use counts."""
    budget_id: str | None = None
    """Always null."""
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


class OwnKeyReply(Reply):
    """The envelope of the calling key."""

    data: OwnKeyData
    """The key."""


class OwnKey:
    """The endpoint of the calling key."""

    def __init__(
        self, accounting: AccountingService, identity: IdentityService, database: Database
    ) -> None:
        """Take what it needs."""
        self._accounting = accounting
        self._identity = identity
        self._database = database

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.get("/key", tags=["Keys"], responses=refusals(401, 403, 500))(self.get_own_key)

    async def get_own_key(self, subject: HoldingKey) -> OwnKeyReply:
        """Show the calling key, of whatever kind, with its counters."""
        async with self._database.reading() as read:
            key = await self._identity.own_key(read, subject)
            standing = await self._accounting.key_standing(read, subject.key_hash)
            credits_ = await self._accounting.credits(read, subject.account_id)
            free = await self._accounting.free_requests(read, subject.account_id)
        manages = key.kind is KeyKind.MANAGEMENT
        first = effective_budget(standing.budgets)
        data = OwnKeyData(
            label=key.label,
            is_free_tier=credits_.purchased_nano == 0,
            free_model_daily_requests=FreeRequestsReply(
                used=free.used, limit=free.limit, remaining=free.remaining
            ),
            is_management_key=manages,
            is_provisioning_key=manages,
            creator_user_id=key.creator_user_id,
            organization_id=key.account_id,
            workspace_id=key.workspace_id,
            budgets=[_budget(each) for each in standing.budgets],
            effective_budget=None if first is None else _budget(first),
            expires_at=key.expires_at,
            **figures(standing),
        )
        return OwnKeyReply(data=data)


def _budget(budget: Budget) -> BudgetReply:
    return BudgetReply(
        scope=budget.scope.value,
        limit_usd=nano_to_float(budget.limit_nano),
        spend_usd=nano_to_float(budget.spend_nano),
        remaining_usd=nano_to_float(budget.remaining_nano),
        reset_interval=None if budget.reset is None else budget.reset.value,
        resets_at=budget.resets_at,
        include_byok=budget.include_byok,
    )
