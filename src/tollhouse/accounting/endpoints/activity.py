"""`GET /activity`: what was asked of which model on which day.

Source: the public gateway's activity of the last 30 days, by day, model and endpoint. Other
periods, `from` and `to`, pages and rows by key are ours, and so is today: there the last days are
complete ones.
"""

from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.accounting.ledger.service import LedgerService
from tollhouse.accounting.ledger.types import Activity, ActivityQuery
from tollhouse.identity.access import Managing
from tollhouse.identity.service import IdentityService
from tollhouse.kernel.clock import Clock
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.pages import Window
from tollhouse.kernel.wire import MOST_SKIPPED, OTHER_ACCOUNT, Reference, Reply, refusals
from tollhouse.storage.database import Database

MOST_ROWS = 10_000
_DAY = timedelta(days=1)
_DAYS = timedelta(days=30)
_DAY_LENGTH = len("2026-01-31")
_SPLITS = {None: None, "key": "key_hash", "workspace": "workspace_id"}


def _day(value: object) -> date:
    if isinstance(value, str) and len(value) == _DAY_LENGTH and value[4] == value[7] == "-":
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise PydanticCustomError("day", "must be a day such as 2026-01-31")


Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]
"""A UTC day."""


class ActivityQueryFields(BaseModel):
    """Which activity is wanted."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)
    day: Day | None = Field(default=None, alias="date", description="One UTC day alone.")
    since: Day | None = Field(
        default=None, alias="from", description="The first UTC day; 30 days back unless given."
    )
    until: Day | None = Field(
        default=None,
        alias="to",
        description="The UTC day after the last one; tomorrow unless given.",
    )
    api_key_hash: Reference | None = Field(default=None, description="One key alone.")
    workspace_id: Reference | None = Field(default=None, description="One workspace alone.")
    user_id: Reference | None = Field(default=None, description="The keys of one user alone.")
    group_by: Literal["workspace", "key"] | None = Field(
        default=None, description="Rows for each workspace or each key, instead of for all."
    )
    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many rows to skip.")
    limit: int = Field(
        default=MOST_ROWS, ge=1, le=MOST_ROWS, description="How many rows to return at most."
    )

    def wanted(self, account_id: str, now: datetime) -> ActivityQuery:
        """Return the same for the ledger.

        Raises:
            Invalid: The days contradict each other.
        """
        since, until = self._days(now)
        return ActivityQuery(
            account_id=account_id,
            since=since,
            until=until,
            window=Window(self.offset, self.limit),
            key_hash=self.api_key_hash,
            workspace_id=self.workspace_id,
            user_id=self.user_id,
            split_by=_SPLITS[self.group_by],
        )

    def _days(self, now: datetime) -> tuple[date, date]:
        if self.day is not None:
            if self.since is not None or self.until is not None:
                message = "date: names one day; leave out from and to."
                raise Invalid(message)
            # The calendar's last day has none after it.
            return self.day, min(self.day, date.max - _DAY) + _DAY
        until = self.until or now.date() + _DAY
        since = self.since or max(until, date.min + _DAYS) - _DAYS
        if until < since:
            message = "from: comes after to."
            raise Invalid(message)
        return since, until


class ActivityItem(Reply):
    """What was asked of a model at a provider on one day."""

    date: str
    """The UTC day, YYYY-MM-DD."""
    model: str
    """The catalogue's id of the model."""
    model_permaslug: str
    """The same as model."""
    endpoint_id: str
    """Provider and model."""
    provider_name: str
    """The provider; empty where nobody answered."""
    usage: float
    """What it cost, in credits."""
    byok_usage_inference: float
    """Own-provider-key use, in credits."""
    requests: int
    """How many requests."""
    prompt_tokens: int
    """Input tokens."""
    completion_tokens: int
    """Output tokens."""
    reasoning_tokens: int
    """How many of the output tokens were reasoning."""
    cached_tokens: int
    """How many of the input tokens came from a cache."""
    workspace_id: str | None
    """The workspace, where rows are split by workspaces."""
    api_key_hash: str | None
    """The key, where rows are split by keys."""


class ActivityPage(Reply):
    """Rows of activity."""

    data: list[ActivityItem]
    """The rows, the latest day first."""
    total_count: int
    """How many there are."""


class ActivityEndpoints:
    """The endpoint of activity."""

    def __init__(
        self, ledger: LedgerService, identity: IdentityService, database: Database, clock: Clock
    ) -> None:
        """Take what it needs."""
        self._ledger = ledger
        self._identity = identity
        self._database = database
        self._clock = clock

    def add_to(self, routes: APIRouter) -> None:
        """Add it to a router."""
        routes.get("/activity", tags=["Credits"], responses=refusals(400, 401, 403, 404, 500, 503))(
            self.get_activity
        )

    async def get_activity(
        self, who: Managing, query: Annotated[ActivityQueryFields, Query()]
    ) -> ActivityPage:
        """Show an account's use by day, model and provider, of the last 30 UTC days with today."""
        async with self._database.reading() as read:
            account_id = await self._identity.home(read, who, query.account_id)
            wanted = query.wanted(account_id, self._clock.now())
            page = await self._ledger.activity(read, wanted)
        return ActivityPage(data=[_item(each) for each in page.items], total_count=page.total)


def _item(row: Activity) -> ActivityItem:
    return ActivityItem(
        date=row.day,
        model=row.model,
        model_permaslug=row.model,
        endpoint_id=f"{row.provider}/{row.model}",
        provider_name=row.provider,
        usage=nano_to_float(row.usage_nano),
        byok_usage_inference=nano_to_float(row.byok_usage_nano),
        requests=row.requests,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        reasoning_tokens=row.reasoning_tokens,
        cached_tokens=row.cached_tokens,
        workspace_id=row.workspace_id,
        api_key_hash=row.key_hash,
    )
