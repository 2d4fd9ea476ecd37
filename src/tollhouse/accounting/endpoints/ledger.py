"""`/ledger/...`: whether the books are right, statements, unknown charges, holders; `/activity`.

Source: the public gateway's activity of the last 30 days, by day, model and endpoint. Other
periods, `from` and `to`, pages and rows by key are ours, and so is today: there the last days are
complete ones. The ledger is ours.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from tollhouse.accounting import budgets
from tollhouse.accounting.endpoints.shared import Credits, CreditsText, Endpoints
from tollhouse.accounting.statements import (
    Activity,
    ActivityQuery,
    StatementQuery,
    activity,
    statement,
)
from tollhouse.accounting.types import CostState, GenerationRecord
from tollhouse.identity.callers import Managing, OfAccount, Operating
from tollhouse.identity.types import Manager
from tollhouse.kernel.errors import Invalid, NotFound
from tollhouse.kernel.money import format_credits
from tollhouse.kernel.pages import Window
from tollhouse.kernel.wire import (
    MOST_SKIPPED,
    OTHER_ACCOUNT,
    Reference,
    RequestModel,
    ResponseModel,
    SentTime,
    endpoint,
)

MOST_LINES = 1_000
_DAY_LENGTH = len("2026-01-31")


def _instant(value: object) -> datetime:
    try:
        if isinstance(value, str) and value.isascii() and len(value) >= _DAY_LENGTH:
            given = datetime.fromisoformat(value)
            if len(value) == _DAY_LENGTH and value[4] == value[7] == "-":
                return given.replace(tzinfo=UTC)
            if given.tzinfo is not None:
                return given.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError(
        "instant", "must be a day such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z"
    )


Instant = Annotated[
    datetime,
    BeforeValidator(_instant),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "date-time"}]}
    ),
]
"""A point in time; a day is its first instant in UTC."""


class AccountQuery(BaseModel):
    """Whose books are wanted."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)


class StatementQueryFields(AccountQuery):
    """Which statement is wanted."""

    since: Instant | None = Field(
        default=None,
        alias="from",
        description="The first instant that counts, or a UTC day; the beginning unless given.",
    )
    until: Instant | None = Field(
        default=None,
        alias="to",
        description="The first instant, or UTC day, that does not count any more; unless given, "
        "everything counts until now.",
    )
    detail: bool = Field(default=False, description="Whether each charge is a line of its own.")
    offset: int = Field(default=0, ge=0, le=MOST_SKIPPED, description="How many lines to skip.")
    limit: int = Field(
        default=MOST_LINES, ge=1, le=MOST_LINES, description="How many lines to return at most."
    )


class DifferenceData(ResponseModel):
    """A value that is not what it has to be."""

    what: str
    """The table and the column, or the rule that is broken."""
    whose: str
    """The key of the row."""
    stored: str | None
    """What the books say, in the column's own unit; null where there is nothing."""
    recomputed: str | None
    """What it has to be."""


class VerifyData(ResponseModel):
    """What recomputing the books has found."""

    clean: bool
    """Whether everything is as it has to be."""
    postings: int
    """How many there are."""
    generations: int
    """How many there are."""
    balances: dict[str, CreditsText]
    """Of every account of the ledger, in credits; all customers are one. They add up to zero."""
    differences: list[DifferenceData]
    """Whatever is not as it has to be."""
    more: bool
    """Whether there are more differences than these."""


class VerifyReply(ResponseModel):
    """The envelope of what recomputing the books has found."""

    data: VerifyData
    """What was found."""


DayText = Annotated[str, BeforeValidator(date.isoformat)]


class LineData(ResponseModel):
    """A line of a statement."""

    date: DayText = Field(validation_alias="day")
    """The UTC day."""
    created_at: SentTime | None = Field(validation_alias="at")
    """When the amount moved; null for the charges of a day."""
    kind: str
    """purchase, grant, refund, adjustment or usage."""
    amount: CreditsText = Field(validation_alias="change_nano")
    """What the balance rose by, in credits; negative where it fell."""
    balance: CreditsText = Field(validation_alias="balance_nano")
    """The balance after it."""
    count: int
    """How many postings it stands for."""
    posting_id: str | None
    """The posting; null for the charges of a day."""
    generation_id: str | None
    """The generation that it is about."""
    model: str | None
    """The model of charges."""
    note: str | None
    """What whoever made the posting wrote about it."""


class StatementData(ResponseModel):
    """What happened to an account's money in a period."""

    account_id: str
    """UUID of the account."""
    opening_balance: CreditsText = Field(validation_alias="opening_nano")
    """The balance before the period."""
    closing_balance: CreditsText = Field(validation_alias="closing_nano")
    """The balance at its end: the opening one and every line of the period."""
    change: CreditsText = Field(validation_alias="change_nano")
    """The difference of the two."""
    lines: list[LineData]
    """The lines of this page, in order."""
    total_count: int = Field(validation_alias="total")
    """How many lines the period has."""


class StatementReply(ResponseModel):
    """The envelope of a statement."""

    data: StatementData
    """The statement."""


class UnknownData(ResponseModel):
    """A generation whose cost nobody knows."""

    id: str
    """The generation's id, as in its reply."""
    account_id: str
    """UUID of the account."""
    workspace_id: str
    """UUID of the workspace."""
    created_at: SentTime
    """When the request came."""
    model: str
    """The model."""
    provider_name: str | None = Field(validation_alias="provider")
    """Who answered; null where nobody did."""
    upstream_id: str | None
    """The provider's own id of the reply, to ask it what the reply cost."""
    cancelled: bool
    """Whether the client went away before its end."""


def _estimate(nano: int | None) -> str:
    return format_credits(nano or 0)


class InterruptedData(UnknownData):
    """A generation that a kill of the gateway interrupted."""

    estimated_cost: Annotated[str | None, BeforeValidator(_estimate)] = Field(
        validation_alias="estimate_nano"
    )
    """What it was thought to cost at most, in credits."""


class InterruptedReply(ResponseModel):
    """The generations that a kill of the gateway interrupted."""

    data: list[InterruptedData]
    """The generations."""


class UnknownReply(ResponseModel):
    """The generations whose cost nobody knows."""

    data: list[UnknownData]
    """The generations."""


MOST_ROWS = 10_000
_DAY = timedelta(days=1)
_DAYS = timedelta(days=30)
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


class ActivityQueryFields(AccountQuery):
    """Which activity is wanted."""

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
        """Return the same for the ledger; `Invalid` where the days contradict each other."""
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
                raise Invalid("date: names one day; leave out from and to.")
            # The calendar's last day has none after it.
            return self.day, min(self.day, date.max - _DAY) + _DAY
        until = self.until or now.date() + _DAY
        since = self.since or max(until, date.min + _DAYS) - _DAYS
        if until < since:
            raise Invalid("from: comes after to.")
        return since, until


class ActivityItem(ResponseModel):
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
    usage: Credits
    """What it cost, in credits."""
    byok_usage_inference: Credits
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
    # Source: `ActivityItem` of `@openrouter/sdk`, which refuses a null.
    workspace_id: str | None = Field(exclude_if=lambda workspace_id: workspace_id is None)
    """The workspace; left out where rows are not split by workspaces."""
    api_key_hash: str | None
    """The key, where rows are split by keys."""


class ActivityPage(ResponseModel):
    """Rows of activity."""

    data: list[ActivityItem]
    """The rows, the latest day first."""
    total_count: int
    """How many there are."""


HolderId = Annotated[Reference, Path(alias="id", description="Id of the holder.")]


class HolderData(ResponseModel):
    """A process that spends budgets which others spend, too."""

    id: str
    """UUID."""
    machine: str
    """Name of its machine."""
    live: bool
    """False once it has ended, or was written off."""
    started_at: datetime
    """When it registered."""
    granted: CreditsText = Field(validation_alias="granted_nano")
    """What it has of balances, in credits, for what runs and what may come."""
    budgets: int
    """Of how many budgets it has something."""


class HoldersReply(ResponseModel):
    """Processes that spend budgets together."""

    data: list[HolderData]
    """Those that run, and those that have something of a budget; the latest first."""


class WriteOffBody(RequestModel):
    """What becomes of what a process has."""

    return_rights: bool = False
    """Whether it may be spent by others at once. If the process has spent some of it, a charge
    that comes later lets a balance or a limit end lower than it should."""


class WriteOffReply(ResponseModel):
    """A process that was written off."""

    data: HolderData
    """It, as it is now."""


class LedgerEndpoints(Endpoints):
    """The endpoints of the ledger and of activity."""

    @endpoint("GET", "/ledger/holders", "Ledger", 401, 403, 500, 503)
    async def list_holders(self, _who: Operating) -> HoldersReply:
        """List the processes that spend balances and limits together.

        Needs an operator's management key. Empty with one server on SQLite without workers.
        """
        async with self.database.reading() as read:
            return HoldersReply.model_validate({"data": await budgets.list_holders(read)})

    @endpoint(
        *("POST", "/ledger/holders/{id}/write-off", "Ledger", 400, 401, 403, 404, 500, 503),
        status=200,
    )
    async def write_off_holder(
        self, who: Operating, holder_id: HolderId, body: WriteOffBody
    ) -> WriteOffReply:
        """Write off a process that is gone for good, with its machine and data folder.

        Needs an operator's management key. One that still runs ends. What it had counts as used
        until a server starts on its data folder, unless it is returned. Written to the audit log.
        """
        async with self.database.writing() as write:
            found = await self.accounting.write_off(
                write, holder_id, return_rights=body.return_rights, actor=who.actor
            )
        if found is None:
            raise NotFound("No such holder.")
        return WriteOffReply.model_validate({"data": found})

    @endpoint("GET", "/activity", "Credits", 400, 401, 403, 404, 500, 503)
    async def get_activity(
        self, who: Managing, query: Annotated[ActivityQueryFields, Query()]
    ) -> ActivityPage:
        """Show an account's use by day, model and provider, of the last 30 UTC days with today."""
        async with self.reading(who, query.account_id) as (read, account_id):
            page = await activity(read, query.wanted(account_id, self.clock.now()))
        return ActivityPage(data=[_item(each) for each in page.items], total_count=page.total)

    @endpoint("GET", "/ledger/verify", "Ledger", 401, 403, 500, 503)
    async def verify_ledger(self, _who: Operating) -> VerifyReply:
        """Recompute every balance and counter from the postings and generations.

        Needs an operator's management key. Each difference is named, a thousand at most. A million
        generations take half a minute; nothing waits for it.
        """
        async with self.database.reading() as read:
            found = await self.ledger.verify(read)
        facts = asdict(found) | {"balances": dict(sorted(found.balances.items()))}
        data = {"clean": not found.differences, **facts}
        return VerifyReply.model_validate({"data": data})

    @endpoint("GET", "/ledger/statement", "Ledger", 400, 401, 403, 404, 500, 503)
    async def get_statement(
        self, who: Managing, query: Annotated[StatementQueryFields, Query()]
    ) -> StatementReply:
        """Show what happened to an account's money in a period.

        Postings stand in order, each with the balance after it; charges of one UTC day and model
        are one line at the end of their day, unless `detail` asks for each. Amounts are texts,
        exact to nine decimals: the opening balance and all lines add up to the closing balance.
        """
        window = Window(query.offset, query.limit)
        async with self.reading(who, query.account_id) as (read, account_id):
            wanted = StatementQuery(account_id, query.since, query.until, query.detail, window)
            found = await statement(read, wanted)
        return StatementReply.model_validate({"data": found})

    @endpoint("GET", "/ledger/unknown", "Ledger", 400, 401, 403, 404, 500, 503)
    async def list_unknown_costs(self, who: Managing, account_id: OfAccount = None) -> UnknownReply:
        """List the generations whose cost nobody knows, newest first, a thousand at most.

        An operator who names no account sees those of all. An adjustment that names a generation
        takes it off the list.
        """
        found = await self._unsettled(CostState.UNKNOWN, who, account_id)
        return UnknownReply.model_validate({"data": found})

    @endpoint("GET", "/ledger/interrupted", "Ledger", 400, 401, 403, 404, 500, 503)
    async def list_interrupted(
        self, who: Managing, account_id: OfAccount = None
    ) -> InterruptedReply:
        """List the generations that a kill of the gateway interrupted, newest first, a thousand.

        A provider was asked and may bill them; nothing was charged. An operator who names no
        account sees those of all. An adjustment that names a generation takes it off the list.
        """
        found = await self._unsettled(CostState.INTERRUPTED, who, account_id)
        return InterruptedReply.model_validate({"data": found})

    async def _unsettled(
        self, state: CostState, who: Manager, account_id: str | None
    ) -> Sequence[GenerationRecord]:
        async with self.database.reading() as read:
            wanted = account_id
            if account_id is not None or not who.operator:
                wanted = await self.identity.home(read, who, account_id)
            return await self.accounting.unsettled(read, state, wanted)


def _item(row: Activity) -> ActivityItem:
    return ActivityItem(
        date=row.day,
        model_permaslug=row.model,
        endpoint_id=f"{row.provider}/{row.model}",
        provider_name=row.provider,
        usage=row.usage_nano,
        byok_usage_inference=row.byok_usage_nano,
        api_key_hash=row.key_hash,
        **asdict(row),
    )
