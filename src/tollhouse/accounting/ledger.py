"""The ledger's check: recomputes the books, and names every value that is not what it has to be.

It only reads, and in one transaction, which sees one state of the books. Every sum is made by the
database: a ledger of millions of rows costs its time and no memory here. The SQL is the same on
both databases; what stands in its braces says how they write a day, and which rows are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting.uses import DERIVED
from tollhouse.kernel.clock import to_millis
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.storage.tables.accounting import budgets, usage_days
from tollhouse.storage.tables.base import METADATA
from tollhouse.storage.tables.identity import accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tollhouse.accounting.settlement.records import MissingCharges
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database, Read

MOST_DIFFERENCES: Final = 1_000
"""How many are named; who has more has one cause."""
SAMPLED_ACCOUNTS: Final = 5
"""How many a sampler looks at each time."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not what it has to be."""

    what: str
    """The table and the column, or the rule that is broken."""
    whose: str
    """The key of the row; the parts of a longer one are separated by spaces."""
    stored: str | None
    """What the books say; None where there is nothing."""
    recomputed: str | None


@dataclass(frozen=True, slots=True)
class LedgerScope:
    """Which part of the books is looked at."""

    account_id: str | None = None
    """None: every account."""
    since: datetime | None = None
    """The first instant of a UTC day: only what was booked from then on, and no totals. None: all
    of it."""


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What looking at the books has found."""

    postings: int
    generations: int
    balances: Mapping[str, int]
    """Of every account of the ledger, in nano-credits; all customers are one. They add up to 0."""
    differences: Sequence[Difference]
    more: bool


_EVERYTHING: Final = LedgerScope()
_BUDGET: Final = ("scope", "id", "period")
_RULES: Final = (
    # A posting's kind says between which two accounts its amount moves.
    """
    SELECT 'postings.source, destination' AS what, id AS whose, sides AS stored,
        expected || CASE kind WHEN 'adjustment' THEN ', or back' ELSE '' END AS recomputed
    FROM (
        SELECT id, kind, sides, CASE kind
            WHEN 'purchase' THEN 'purchases -> ' || customer
            WHEN 'grant' THEN 'grants -> ' || customer
            WHEN 'refund' THEN customer || ' -> purchases'
            WHEN 'usage' THEN customer || ' -> revenue'
            ELSE 'adjustments -> ' || customer
        END AS expected, customer || ' -> adjustments' AS taken
        FROM (
            SELECT id, kind, source || ' -> ' || destination AS sides,
                'customer:' || account_id AS customer
            FROM postings WHERE {postings}
        ) AS moved
    ) AS compared
    WHERE sides <> expected AND (kind <> 'adjustment' OR sides <> taken)
    ORDER BY id
    """,
    # A generation that costs something has a usage posting of the same amount, account and time.
    """
    WITH wrong AS (
        SELECT generations.id, cost_nano, generations.account_id, generations.created_at,
            postings.id AS posting_id, amount_nano, postings.account_id AS charged_account,
            postings.created_at AS charged_at
        FROM generations LEFT JOIN postings
            ON postings.generation_id = generations.id AND postings.kind = 'usage'
        WHERE (
            (postings.id IS NULL AND cost_nano > 0) OR amount_nano <> cost_nano
            OR postings.account_id <> generations.account_id
            OR postings.created_at <> generations.created_at
        ) AND {generations}
    )
    SELECT 'usage posting of a generation' AS what, id AS whose, NULL AS stored,
        CAST(cost_nano AS TEXT) AS recomputed
    FROM wrong WHERE posting_id IS NULL
    UNION ALL
    SELECT 'usage posting of a generation: amount_nano', id, CAST(amount_nano AS TEXT),
        CAST(cost_nano AS TEXT)
    FROM wrong WHERE amount_nano <> cost_nano
    UNION ALL
    SELECT 'usage posting of a generation: account_id', id, charged_account, account_id
    FROM wrong WHERE charged_account <> account_id
    UNION ALL
    SELECT 'usage posting of a generation: created_at', id, CAST(charged_at AS TEXT),
        CAST(created_at AS TEXT)
    FROM wrong WHERE charged_at <> created_at
    ORDER BY whose
    """,
    # A generation is charged once.
    """
    SELECT 'usage postings of a generation' AS what, generation_id AS whose,
        CAST(COUNT(*) AS TEXT) AS stored, '1' AS recomputed
    FROM postings WHERE kind = 'usage' AND generation_id IS NOT NULL AND {postings}
    GROUP BY generation_id HAVING COUNT(*) > 1 ORDER BY generation_id
    """,
    # The generation that a posting names is there; that of an adjustment is its account's. (That a
    # charge is another account's is said above.)
    """
    SELECT CASE kind WHEN 'adjustment' THEN 'generation of an ' ELSE 'generation of a ' END
        || kind || ' posting' AS what, id AS whose, NULL AS stored, generation_id AS recomputed
    FROM postings
    WHERE (kind = 'usage' OR generation_id IS NOT NULL) AND {postings} AND NOT EXISTS (
        SELECT 1 FROM generations WHERE generations.id = postings.generation_id
            AND (postings.kind = 'usage' OR generations.account_id = postings.account_id)
    )
    ORDER BY id
    """,
)
"""What holds of every row: a statement returns the differences from it."""
_TOTALS: Final = {
    "account_totals": """
        SELECT account_id,
            SUM(CASE kind WHEN 'purchase' THEN amount_nano ELSE 0 END) AS purchased_nano,
            SUM(CASE kind WHEN 'grant' THEN amount_nano ELSE 0 END) AS granted_nano,
            SUM(CASE kind WHEN 'usage' THEN amount_nano ELSE 0 END) AS used_nano,
            SUM(CASE kind WHEN 'refund' THEN amount_nano ELSE 0 END) AS refunded_nano,
            SUM(CASE WHEN kind <> 'adjustment' THEN 0
                WHEN destination = 'customer:' || account_id THEN amount_nano
                ELSE -amount_nano END) AS adjusted_nano
        FROM postings WHERE {postings} GROUP BY account_id
    """,
    "key_totals": """
        SELECT key_hash, {spend}, MAX(created_at) AS last_used_at FROM {of_keys} GROUP BY key_hash
    """,
}
_DAYS: Final = {
    "account_days": """
        SELECT account_id, {day} AS day,
            SUM(CASE WHEN free_limited THEN 1 ELSE 0 END) AS free_requests,
            SUM(CASE WHEN is_byok THEN 1 ELSE 0 END) AS byok_requests
        FROM generations WHERE (free_limited OR is_byok) AND {generations} GROUP BY 1, 2
    """,
    "key_days": """
        SELECT key_hash, day, {spend}, COUNT(*) AS requests FROM {of_keys} GROUP BY key_hash, day
    """,
    "usage_days": """
        SELECT account_id, {day} AS day, key_hash, model, COALESCE(provider, '') AS provider,
            workspace_id, COUNT(*) AS requests,
            SUM(input_tokens + cache_read_tokens + cache_write_tokens + cache_write_1h_tokens)
                AS prompt_tokens,
            SUM(output_tokens) AS completion_tokens, SUM(reasoning_tokens) AS reasoning_tokens,
            SUM(cache_read_tokens) AS cached_tokens, {spend}
        FROM generations WHERE {generations} GROUP BY 1, 2, 3, 4, 5, 6
    """,
    "owner_days": """
        SELECT account_id, scope, owner_id, day, {spend} FROM (
            SELECT account_id, 'workspace' AS scope, workspace_id AS owner_id, {costs}
            FROM generations WHERE {generations}
            UNION ALL
            SELECT account_id, 'end_user', workspace_id || ':' || external_user, {costs}
            FROM generations WHERE external_user <> '' AND {generations}
        ) AS owned GROUP BY account_id, scope, owner_id, day
    """,
}
"""Tables of counters, and the rows that they have to have."""
_PARTS: Final = {
    "spend": """SUM(cost_nano) AS usage_nano,
        SUM(CASE WHEN is_byok THEN COALESCE(provider_cost_nano, 0) ELSE 0 END) AS byok_usage_nano
    """,
    "costs": "{day} AS day, created_at, is_byok, cost_nano, provider_cost_nano",
    # One with a payer counts for both keys.
    "of_keys": """(
        SELECT key_hash, {costs} FROM generations WHERE {generations}
        UNION ALL
        SELECT payer_hash, {costs} FROM generations WHERE payer_hash IS NOT NULL AND {generations}
    ) AS of_keys""",
    # Of keys that are or were used in an account.
    "of_account": """key_hash IN (
        SELECT hash FROM api_keys WHERE account_id = :account
        UNION SELECT key_hash FROM generations WHERE {generations}
        UNION SELECT payer_hash FROM generations WHERE payer_hash IS NOT NULL AND {generations}
    )""",
}
# In two parts: SQLite's sums end at 64 bits, and all accounts together may hold more.
_BALANCES: Final = """
    SELECT name, SUM(sign * (amount_nano / {credit})) AS whole,
        SUM(sign * (amount_nano % {credit})) AS rest
    FROM (
        SELECT CASE WHEN SUBSTR(account, 1, 9) = 'customer:' THEN 'customers' ELSE account END
            AS name, sign, amount_nano
        FROM (
            SELECT destination AS account, 1 AS sign, amount_nano FROM postings WHERE {postings}
            UNION ALL
            SELECT source, -1, amount_nano FROM postings WHERE {postings}
        ) AS moved
    ) AS named GROUP BY name
"""
_SIZE: Final = """
    SELECT (SELECT COUNT(*) FROM postings WHERE {postings}) AS postings,
        (SELECT COUNT(*) FROM generations WHERE {generations}) AS generations
"""
_COMPARE: Final = """
    SELECT {keys}, {sums} FROM (
        SELECT {keys}, {stored} FROM {table} WHERE {rows}
        UNION ALL
        SELECT {keys}, {anew} FROM ({recomputed}) AS recomputed
    ) AS sides GROUP BY {keys} HAVING {differ} ORDER BY {keys}
"""


def utc_day(dialect: str, column: str = "created_at") -> str:
    """Return the UTC day of an instant, as `YYYY-MM-DD`, in SQL."""
    if dialect == "sqlite":
        return f"date({column} / 1000.0, 'unixepoch')"
    return f"to_char(to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"


class _Look:
    """A look at a part of the books."""

    def __init__(self, read: Read, scope: LedgerScope, most: int) -> None:
        self._read = read
        self._scope = scope
        self._most = most
        of_account = "" if scope.account_id is None else "{0}.account_id = :account AND "
        since = "TRUE" if scope.since is None else f"{{0}}.created_at >= {to_millis(scope.since)}"
        self._parts = {"day": utc_day(read.dialect), "credit": str(NANO_PER_CREDIT)}
        for table in ("postings", "generations"):
            self._parts[table] = (of_account + since).format(table)
        for name, part in _PARTS.items():
            self._parts[name] = part.format_map(self._parts)

    async def rows(self, statement: str) -> Sequence[dict[str, Any]]:
        """Return what a statement finds, at most as much as is asked for."""
        found = sa.text(f"{statement.format_map(self._parts)} LIMIT {self._most}")
        if self._scope.account_id is not None:
            found = found.bindparams(account=self._scope.account_id)
        return [dict(row) for row in (await self._read.execute(found)).mappings()]

    async def differences(self) -> list[Difference]:
        """Return what rows and counters show."""
        found = [Difference(**row) for rule in _RULES for row in await self.rows(rule)]
        counters = _DAYS if self._scope.since is not None else {**_TOTALS, **_DAYS}
        for table, recomputed in counters.items():
            found += await self._counters(METADATA.tables[table], recomputed)
        return found

    async def _counters(self, table: sa.Table, recomputed: str) -> list[Difference]:
        """Return the counters that are not what they count; a row that is missing has zeros."""
        keys = [column.name for column in table.primary_key]
        names = [column.name for column in table.columns if column.name not in keys]
        rows = ["TRUE"]
        if self._scope.account_id is not None:
            rows.append("account_id = :account" if "account_id" in keys else "{of_account}")
        if self._scope.since is not None:
            rows.append(f"day >= '{self._scope.since.date().isoformat()}'")
        statement = _COMPARE.format(
            table=table.name,
            keys=", ".join(keys),
            rows=" AND ".join(rows),
            recomputed=recomputed,
            stored=", ".join(f"{name} AS s_{name}, 0 AS r_{name}" for name in names),
            anew=", ".join(f"0, {name}" for name in names),
            sums=", ".join(
                f"SUM(s_{name}) AS s_{name}, SUM(r_{name}) AS r_{name}" for name in names
            ),
            differ=" OR ".join(f"SUM(s_{name}) <> SUM(r_{name})" for name in names),
        )
        return [
            each
            for row in await self.rows(statement)
            for each in _in_row(table.name, keys, names, row)
        ]

    async def budgets(self) -> list[Difference]:
        """Return the budgets that are not what they are derived from."""
        both = [
            column.label(side + name)
            for name, derived in DERIVED.items()
            for side, column in (("s_", budgets.c[name]), ("r_", derived))
        ]
        differ = [budgets.c[name].is_distinct_from(derived) for name, derived in DERIVED.items()]
        ids = [budgets.c[name] for name in _BUDGET]
        query = sa.select(*ids, *both).where(sa.or_(*differ)).order_by(*ids).limit(self._most)
        return [
            each
            for row in (await self._read.execute(query)).mappings()
            for each in _in_row("budgets", _BUDGET, DERIVED, dict(row))
        ]


def _in_row(
    table: str, keys: Iterable[str], names: Iterable[str], row: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield what differs in a row, which has each amount twice: stored, and recomputed."""
    whose = " ".join(str(row[key]) for key in keys)
    for name in names:
        stored, recomputed = row["s_" + name], row["r_" + name]
        if stored != recomputed:
            # PostgreSQL's sums of whole numbers are decimals.
            texts = [None if each is None else str(int(each)) for each in (stored, recomputed)]
            yield Difference(f"{table}.{name}", whose, *texts)


@dataclass(frozen=True, slots=True)
class LedgerService:
    """Looks at the books; changes nothing."""

    clock: Clock
    most_requests: int = 20_000
    """Of an account with more, a sample looks at two days alone. So many take SQLite half a second
    of CPU time."""
    missing: Callable[[], Iterable[MissingCharges]] = tuple
    """Tells what was gone from the journal at a start; may read a file."""

    async def verify(self, read: Read, scope: LedgerScope = _EVERYTHING) -> LedgerReport:
        """Recompute every balance and counter, and name each difference.

        `read` is one snapshot: what is booked meanwhile is not seen at all.
        """
        look = _Look(read, scope, MOST_DIFFERENCES + 1)
        found = await look.differences()
        if scope == _EVERYTHING:
            found += await look.budgets()
            found += [
                Difference("journal", each.file, f"{each.found} bytes", f"{each.expected} bytes")
                for each in self.missing()
            ]
        balances = {
            row["name"]: int(row["whole"]) * NANO_PER_CREDIT + int(row["rest"])
            for row in await look.rows(_BALANCES)
        }
        if total := sum(balances.values()):
            whole = "sum of all accounts of the ledger"
            found.append(Difference(whole, "ledger", str(total), "0"))
        [size] = await look.rows(_SIZE)
        return LedgerReport(
            **size,
            balances=balances,
            differences=found[:MOST_DIFFERENCES],
            more=len(found) > MOST_DIFFERENCES,
        )

    async def scope_of(self, read: Read, account_id: str) -> LedgerScope:
        """Return what a sample looks at: all of an account, of a busy one today and yesterday."""
        counted = sa.select(sa.func.sum(usage_days.c.requests))
        counted = counted.where(usage_days.c.account_id == account_id)
        if ((await read.execute(counted)).scalar_one() or 0) <= self.most_requests:
            return LedgerScope(account_id)
        yesterday = self.clock.now().astimezone(UTC).date() - timedelta(days=1)
        return LedgerScope(account_id, datetime.combine(yesterday, time(), UTC))


@dataclass(slots=True)
class LedgerSampler:
    """The ledger's invariant: verifies some accounts each time, and after the last begins anew."""

    ledger: LedgerService
    database: Database
    _last: str = field(default="", init=False)

    async def differences(self) -> list[Difference]:
        """Verify the next accounts, each in a snapshot of its own, and return what differs."""
        following = sa.select(accounts.c.id).where(accounts.c.id > self._last)
        following = following.order_by(accounts.c.id).limit(SAMPLED_ACCOUNTS)
        async with self.database.reading() as read:
            chosen = (await read.execute(following)).scalars().all()
        found: list[Difference] = []
        for account_id in chosen:
            async with self.database.reading() as read:
                scope = await self.ledger.scope_of(read, account_id)
                found += (await self.ledger.verify(read, scope)).differences
        self._last = chosen[-1] if len(chosen) == SAMPLED_ACCOUNTS else ""
        return found
