"""What the ledger looks like on the wire. Its amounts are texts: a JSON number is not exact."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tollhouse.accounting.ledger.types import LedgerReport, Statement, StatementLine, StatementQuery
from tollhouse.accounting.types import GenerationRecord
from tollhouse.kernel.money import format_credits
from tollhouse.kernel.pages import Window
from tollhouse.kernel.wire import MOST_SKIPPED, OTHER_ACCOUNT, Reference, Reply, SentTime

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
        {
            "anyOf": [
                {"type": "string", "format": "date"},
                {"type": "string", "format": "date-time"},
            ]
        }
    ),
]
"""A point in time; a day is its first instant in UTC."""


class StatementQueryFields(BaseModel):
    """Which statement is wanted."""

    account_id: Reference | None = Field(default=None, description=OTHER_ACCOUNT)
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

    def wanted(self, account_id: str) -> StatementQuery:
        """Return the same for the ledger."""
        window = Window(self.offset, self.limit)
        return StatementQuery(account_id, self.since, self.until, self.detail, window)


class DifferenceData(Reply):
    """A value that is not what it has to be."""

    what: str
    """The table and the column, or the rule that is broken."""
    whose: str
    """The key of the row."""
    stored: str | None
    """What the books say, in the column's own unit; null where there is nothing."""
    recomputed: str | None
    """What it has to be."""


class VerifyData(Reply):
    """What recomputing the books has found."""

    clean: bool
    """Whether everything is as it has to be."""
    postings: int
    """How many there are."""
    generations: int
    """How many there are."""
    balances: dict[str, str]
    """Of every account of the ledger, in credits; all customers are one. They add up to zero."""
    differences: list[DifferenceData]
    """Whatever is not as it has to be."""
    more: bool
    """Whether there are more differences than these."""


class VerifyReply(Reply):
    """The envelope of what recomputing the books has found."""

    data: VerifyData
    """What was found."""


class LineData(Reply):
    """A line of a statement."""

    date: str
    """The UTC day."""
    created_at: SentTime | None
    """When the amount moved; null for the charges of a day."""
    kind: str
    """purchase, grant, refund, adjustment or usage."""
    amount: str
    """What the balance rose by, in credits; negative where it fell."""
    balance: str
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


class StatementData(Reply):
    """What happened to an account's money in a period."""

    account_id: str
    """UUID of the account."""
    opening_balance: str
    """The balance before the period."""
    closing_balance: str
    """The balance at its end: the opening one and every line of the period."""
    change: str
    """The difference of the two."""
    lines: list[LineData]
    """The lines of this page, in order."""
    total_count: int
    """How many lines the period has."""


class StatementReply(Reply):
    """The envelope of a statement."""

    data: StatementData
    """The statement."""


class UnknownData(Reply):
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
    provider_name: str | None
    """Who answered; null where nobody did."""
    upstream_id: str | None
    """The provider's own id of the reply, to ask it what the reply cost."""
    cancelled: bool
    """Whether the client went away before its end."""


class UnknownReply(Reply):
    """The generations whose cost nobody knows."""

    data: list[UnknownData]
    """The generations."""


def verify_reply(found: LedgerReport) -> VerifyReply:
    """Return what was found as it is sent."""
    differences = [
        DifferenceData(
            what=each.what, whose=each.whose, stored=each.stored, recomputed=each.recomputed
        )
        for each in found.differences
    ]
    data = VerifyData(
        clean=not differences,
        postings=found.postings,
        generations=found.generations,
        balances={name: format_credits(nano) for name, nano in sorted(found.balances.items())},
        differences=differences,
        more=found.more,
    )
    return VerifyReply(data=data)


def statement_reply(found: Statement) -> StatementReply:
    """Return a statement as it is sent."""
    data = StatementData(
        account_id=found.account_id,
        opening_balance=format_credits(found.opening_nano),
        closing_balance=format_credits(found.closing_nano),
        change=format_credits(found.change_nano),
        lines=[_line(line) for line in found.lines],
        total_count=found.total,
    )
    return StatementReply(data=data)


def _line(line: StatementLine) -> LineData:
    moved = line.movement
    return LineData(
        date=moved.day.isoformat(),
        created_at=moved.at,
        kind=moved.kind,
        amount=format_credits(moved.change_nano),
        balance=format_credits(line.balance_nano),
        count=moved.count,
        posting_id=moved.posting_id,
        generation_id=moved.generation_id,
        model=moved.model,
        note=moved.note,
    )


def unknown_reply(found: Sequence[GenerationRecord]) -> UnknownReply:
    """Return generations of unknown cost as they are sent."""
    return UnknownReply(
        data=[
            UnknownData(
                id=record.id,
                account_id=record.account_id,
                workspace_id=record.workspace_id,
                created_at=record.created_at,
                model=record.model,
                provider_name=record.provider,
                upstream_id=record.upstream_id,
                cancelled=record.cancelled,
            )
            for record in found
        ]
    )
