"""Whether the books are right, on both databases: they are, and each thing that is not is named."""

import random
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.component.accounting.bookkeeping import Bookkeeping
from tests.component.accounting.ledger_reader import record_for
from tests.support.builders import Tenant, add_tenant, charge
from tests.support.clock import START, FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    MOST_DIFFERENCES,
    SAMPLED_ACCOUNTS,
    CostState,
    Difference,
    GenerationRecord,
    LedgerReport,
    LedgerSampler,
    LedgerScope,
    LedgerService,
    MissingCharges,
    PostingKind,
    Usage,
)
from tollhouse.kernel.errors import Conflict
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database

DAY = timedelta(days=1)
PAYER = "p" * 64
FIRST = "gen-1773311400-" + f"{1:020x}"


def invented(tenant: Tenant, number: int, dice: random.Random, **fields: Any) -> GenerationRecord:
    """Return a generation in which everything that the books count is at random."""
    usage = Usage(*(dice.randrange(100) for _ in range(6)))
    unknown = dice.random() < 0.1
    cost = 0 if unknown else dice.choice([0, 1, dice.randrange(10**12)])
    facts: dict[str, Any] = {
        "key_hash": dice.choice([tenant.key.hash, f"{tenant.account.id}-second"]),
        "payer_hash": dice.choice([None, None, f"{tenant.account.id}-payer"]),
        "model": dice.choice(["acme/large", "acme/small:free"]),
        "provider": dice.choice(["acme", "other", None]),
        "workspace_id": dice.choice([tenant.workspace.id, "elsewhere"]),
        "is_byok": dice.random() < 0.2,
        "free_limited": dice.random() < 0.3,
        "created_at": START + timedelta(minutes=dice.randrange(-5_000, 5_000)),
        "charge": charge(
            cost,
            state=CostState.UNKNOWN if unknown else CostState.EXACT,
            usage=usage,
            provider_cost_nano=dice.choice([None, cost, dice.randrange(10**9)]),
        ),
        **fields,
    }
    return record_for(tenant, number, **facts)


async def live(
    fixture: Bookkeeping, tenants: list[Tenant], dice: random.Random, steps: int
) -> None:
    """Do what happens to an installation's money, at random."""
    number = 0
    for _ in range(steps):
        tenant = dice.choice(tenants)
        if dice.random() < 0.5:
            size = dice.randrange(1, 6)
            await fixture.writer.write(
                [invented(dice.choice(tenants), number + more, dice) for more in range(size)]
            )
            number += dice.randrange(1, size + 1)  # some come again in the next group
            continue
        kind = dice.choice([each for each in PostingKind if each is not PostingKind.USAGE])
        nano = dice.randrange(1, 10**10)
        try:
            await fixture.add(
                tenant,
                kind,
                -nano if kind is PostingKind.ADJUSTMENT and dice.random() < 0.5 else nano,
            )
        except Conflict:
            assert kind is PostingKind.REFUND


@pytest.mark.parametrize("seed", range(2))
async def test_books_that_nobody_tampered_with_are_right(
    acme: Tenant, other: Tenant, fixture: Bookkeeping, seed: int
) -> None:
    await live(fixture, [acme, other], random.Random(seed), 40)
    found = await fixture.verify()
    assert (found.differences, found.more) == ([], False)
    assert found.postings > 10
    assert found.generations > 10
    assert sum(found.balances.values()) == 0
    for tenant in (acme, other):
        assert await fixture.found(LedgerScope(tenant.account.id)) == []
        assert (
            await fixture.found(LedgerScope(tenant.account.id, START.replace(hour=0, minute=0)))
            == []
        )


async def test_balances_are_exact_where_they_are_large(
    acme: Tenant, other: Tenant, fixture: Bookkeeping
) -> None:
    assert await fixture.verify() == LedgerReport(0, 0, {}, [], more=False)
    for tenant in (acme, other):
        await fixture.add(tenant, PostingKind.PURCHASE, MAX_NANO)
    found = await fixture.verify()
    assert found.balances == {"customers": 2 * MAX_NANO, "purchases": -2 * MAX_NANO}
    assert found.differences == []


class Undone(Exception):
    """Takes a transaction back."""


async def found_after(
    fixture: Bookkeeping, statement: str, *scopes: LedgerScope
) -> list[list[Difference]]:
    """Tamper with a row; return what is found in each scope, and take it back."""
    found: list[list[Difference]] = []
    with suppress(Undone):
        async with fixture.database.writing() as write:
            changed = await write.execute(sa.text(statement))
            assert changed.rowcount == 1, statement
            for scope in scopes:
                report = await fixture.ledger.verify(write, scope)
                found.append(list(report.differences))
            raise Undone
    return found


def told(difference: Difference) -> str:
    where = f"{difference.what} of {difference.whose}"
    return f"{where}: {difference.stored}, not {difference.recomputed}"


def assert_told(found: list[Difference], expected: Sequence[str], statement: str) -> None:
    """Assert that each difference begins with another one of the expected texts."""
    texts = sorted(map(told, found))
    assert len(texts) == len(expected), (statement, texts)
    for text, beginning in zip(texts, sorted(expected), strict=True):
        assert text.startswith(beginning), (statement, text)


def changed(table: str, name: str, by: str, where: str) -> str:
    """Return the statement that changes a number of a table."""
    return f"UPDATE {table} SET {name} = {name} {by} WHERE {where}"  # noqa: S608 - ours


DAY_OF_PAYER = "key_days.{} of PAYER 2026-03-12: "
OF_A_PAYER = {
    **{
        changed("key_totals", name, "- 1", "key_hash = 'PAYER'"): [f"key_totals.{name} of PAYER: "]
        for name in ("usage_nano", "byok_usage_nano", "last_used_at")
    },
    **{
        changed("key_days", name, "+ 1", "key_hash = 'PAYER'"): [DAY_OF_PAYER.format(name)]
        for name in ("usage_nano", "byok_usage_nano", "requests")
    },
    "UPDATE generations SET payer_hash = NULL WHERE is_byok": [
        "key_totals.byok_usage_nano of PAYER: ",
        DAY_OF_PAYER.format("byok_usage_nano"),
        DAY_OF_PAYER.format("requests"),
    ],
}


async def test_counters_of_a_key_that_answers_for_another_are_recomputed_too(
    acme: Tenant, fixture: Bookkeeping
) -> None:
    """The books hold two generations of an intern, and one of the key that answers for it."""
    own = {"key_hash": "intern", "payer_hash": PAYER}
    byok = charge(0, provider_cost_nano=8)
    await fixture.writer.write(
        [
            record_for(acme, 1, cost_nano=7, **own),
            record_for(acme, 2, is_byok=True, charge=byok, **own),
            record_for(acme, 3, cost_nano=5, key_hash=PAYER),
        ]
    )
    scopes = (LedgerScope(), LedgerScope(acme.account.id))
    for scope in scopes:
        assert await fixture.found(scope) == []
    for template, expected in OF_A_PAYER.items():
        statement = template.replace("PAYER", PAYER)
        everything, sample = await found_after(fixture, statement, *scopes)
        assert sample == everything, statement
        assert_told(everything, [each.replace("PAYER", PAYER) for each in expected], statement)


CHARGE = "usage posting of a generation"
USE_OF_A_DAY = (
    *("requests", "prompt_tokens", "completion_tokens", "reasoning_tokens", "cached_tokens"),
    *("usage_nano", "byok_usage_nano"),
)
COUNTERS_OF = {
    "account_days": ("account_id = 'ACCOUNT'", ("free_requests", "byok_requests")),
    "key_totals": ("key_hash = 'KEY'", ("usage_nano", "byok_usage_nano", "last_used_at")),
    "key_days": ("key_hash = 'KEY'", ("usage_nano", "byok_usage_nano", "requests")),
}
TOTALS = {
    "purchased_nano": 10_000,
    "granted_nano": 300,
    "used_nano": 709,
    "refunded_nano": 2_000,
    "adjusted_nano": 50,
}
DAY_OF_ACCOUNT = "account_days.free_requests of ACCOUNT 2026-03-12: "
TAMPERED: dict[str, Sequence[str]] = {
    **{
        changed("account_totals", name, "+ 1", "account_id = 'ACCOUNT'"): [
            f"account_totals.{name} of ACCOUNT: {stored + 1}, not {stored}"
        ]
        for name, stored in TOTALS.items()
    },
    **{
        changed("key_totals", name, "- 1", "key_hash = 'KEY'"): [
            f"key_totals.{name} of KEY: {stored}"
        ]
        for name, stored in (
            ("usage_nano", "708, not 709"),
            ("byok_usage_nano", "49, not 50"),
            ("last_used_at", ""),
        )
    },
    **{
        changed("key_days", name, "+ 1", "key_hash = 'KEY'"): [
            f"key_days.{name} of KEY 2026-03-12: "
        ]
        for name in COUNTERS_OF["key_days"][1]
    },
    **{
        changed("usage_days", name, "+ 1", "account_id = 'ACCOUNT'"): [
            f"usage_days.{name} of ACCOUNT 2026-03-12 KEY acme/large acme "
        ]
        for name in USE_OF_A_DAY
    },
    **{
        changed("owner_days", name, "+ 1", f"scope = '{scope}' AND account_id = 'ACCOUNT'"): [
            f"owner_days.{name} of ACCOUNT {scope} WORKSPACE{user} 2026-03-12: "
        ]
        for name in ("usage_nano", "byok_usage_nano")
        for scope, user in (("workspace", ""), ("end_user", ":ada"))
    },
    "UPDATE account_days SET free_requests = 5": [DAY_OF_ACCOUNT + "5, not 1"],
    "UPDATE account_days SET byok_requests = 5": [DAY_OF_ACCOUNT.replace("free", "byok") + "5"],
    **{
        f"DELETE FROM {table} WHERE {where}": [  # noqa: S608 - ours
            f"{table}.{name} of " for name in names
        ]
        for table, (where, names) in COUNTERS_OF.items()
    },
    "INSERT INTO account_days (account_id, day, free_requests) "
    "VALUES ('ACCOUNT', '2026-03-01', 3)": [
        "account_days.free_requests of ACCOUNT 2026-03-01: 3, not 0"
    ],
    **{
        changed("postings", "amount_nano", "* 0 + 1", f"kind = '{kind}'"): [
            f"account_totals.{name} of ACCOUNT: {TOTALS[name]}, not 1"
        ]
        for kind, name in (
            ("purchase", "purchased_nano"),
            ("grant", "granted_nano"),
            ("refund", "refunded_nano"),
        )
    },
    "UPDATE postings SET amount_nano = 41 WHERE id = 'TAKEN'": [
        "account_totals.adjusted_nano of ACCOUNT: 50, not 49"
    ],
    "DELETE FROM postings WHERE id = 'GRANTED'": [
        "account_totals.granted_nano of ACCOUNT: 300, not 0"
    ],
    "UPDATE postings SET source = 'grants' WHERE id = 'PURCHASE'": [
        (
            "postings.source, destination of PURCHASE: "
            "grants -> customer:ACCOUNT, not purchases -> customer:ACCOUNT"
        )
    ],
    "UPDATE postings SET source = destination, destination = source WHERE id = 'GIVEN'": [
        "account_totals.adjusted_nano of ACCOUNT: 50, not -130"
    ],
    "UPDATE postings SET kind = 'grant' WHERE id = 'PURCHASE'": [
        "postings.source, destination of ",
        "account_totals.purchased_nano of ",
        "account_totals.granted_nano of ",
    ],
    "UPDATE postings SET amount_nano = 701 WHERE id = 'usage-FIRST'": [
        f"{CHARGE}: amount_nano of FIRST: 701, not 700",
        "account_totals.used_nano of ACCOUNT: 709, not 710",
    ],
    "UPDATE postings SET created_at = created_at + 1 WHERE id = 'usage-FIRST'": [
        f"{CHARGE}: created_at of "
    ],
    "UPDATE postings SET account_id = 'OTHER' WHERE id = 'usage-FIRST'": [
        "postings.source, destination of usage-FIRST: ",
        f"{CHARGE}: account_id of FIRST: ",
        "account_totals.used_nano of ACCOUNT: ",
        "account_totals.used_nano of OTHER: ",
    ],
    "DELETE FROM postings WHERE id = 'usage-FIRST'": [
        f"{CHARGE} of FIRST: None, not 700",
        "account_totals.used_nano of ACCOUNT: 709, not 9",
    ],
    "UPDATE generations SET cost_nano = 800 WHERE id = 'FIRST'": [
        f"{CHARGE}: amount_nano of FIRST: 700, not 800",
        "key_totals.usage_nano of KEY: 709, not 809",
        "key_days.usage_nano of KEY 2026-03-12: 709, not 809",
        "usage_days.usage_nano of ",
        *["owner_days.usage_nano of "] * 2,
    ],
    "UPDATE generations SET cost_nano = 1 WHERE id = 'SECOND'": [
        f"{CHARGE} of SECOND: None, not 1",
        "key_totals.usage_nano of ",
        "key_days.usage_nano of ",
        "usage_days.usage_nano of ",
        "owner_days.usage_nano of ",
    ],
    "DELETE FROM generations WHERE id = 'FIRST'": [
        "generation of a usage posting of usage-FIRST: None, not FIRST",
        "generation of an adjustment posting of TAKEN: None, not FIRST",
        "account_days.",
        *("key_totals.",),
        *["key_days."] * 2,
        *["usage_days."] * 4,
        *["owner_days."] * 2,
    ],
    "UPDATE postings SET generation_id = NULL WHERE id = 'usage-FIRST'": [
        f"{CHARGE} of FIRST: None, not 700",
        "generation of a usage posting of usage-FIRST: None, not None",
    ],
    "UPDATE postings SET generation_id = 'FOURTH' WHERE id = 'TAKEN'": [
        "generation of an adjustment posting of TAKEN: None, not FOURTH"
    ],
    "UPDATE generations SET free_limited = FALSE WHERE id = 'FIRST'": [DAY_OF_ACCOUNT],
    "UPDATE generations SET output_tokens = output_tokens + 1 WHERE id = 'FIRST'": [
        "usage_days.completion_tokens of "
    ],
}
"""Statements that change one row past the program, and what is told of it."""

OTHERWISE_COUNTED = {
    "key_hash = 'another'": {"key_totals", "key_days", "usage_days"},
    "model = 'acme/other'": {"usage_days"},
    "provider = NULL": {"usage_days"},
    "external_user = 'bob'": {"owner_days"},
    "workspace_id = 'lab'": {"usage_days", "owner_days"},
}


@pytest.fixture
async def names(acme: Tenant, other: Tenant, fixture: Bookkeeping) -> dict[str, str]:
    """A posting of each kind and three generations, and another account beside them."""
    byok = charge(9, provider_cost_nano=50)
    await fixture.writer.write(
        [
            record_for(acme, 1, cost_nano=700, free_limited=True, external_user="ada"),
            record_for(acme, 2, cost_nano=0),
            record_for(acme, 3, is_byok=True, charge=byok),
            record_for(other, 4, cost_nano=5),
        ]
    )
    return {
        "ACCOUNT": acme.account.id,
        "WORKSPACE": acme.key.workspace_id,
        "KEY": acme.key.hash,
        "OTHER": other.account.id,
        "FIRST": FIRST,
        "SECOND": FIRST[:-1] + "2",
        "FOURTH": FIRST[:-1] + "4",
        "PURCHASE": (await fixture.add(acme, PostingKind.PURCHASE, 10_000)).id,
        "GRANTED": (await fixture.add(acme, PostingKind.GRANT, 300)).id,
        "REFUND": (await fixture.add(acme, PostingKind.REFUND, 2_000)).id,
        "TAKEN": (await fixture.add(acme, PostingKind.ADJUSTMENT, -40, FIRST)).id,
        "GIVEN": (await fixture.add(acme, PostingKind.ADJUSTMENT, 90)).id,
    }


def named(text: str, names: dict[str, str]) -> str:
    return re.sub("|".join(names), lambda match: names[match[0]], text)


async def test_a_row_that_was_changed_past_the_program_is_named(
    fixture: Bookkeeping, names: dict[str, str]
) -> None:
    scopes = LedgerScope(), LedgerScope(names["ACCOUNT"])
    for scope in scopes:
        assert await fixture.found(scope) == []
    for template, expected in TAMPERED.items():
        statement = named(template, names)
        everything, sample = await found_after(fixture, statement, *scopes)
        assert_told(everything, [named(each, names) for each in expected], statement)
        if "OTHER" not in template:  # one account alone shows the same of it
            assert set(sample) == {each for each in everything if names["OTHER"] not in each.whose}
    for change, tables in OTHERWISE_COUNTED.items():
        statement = f"UPDATE generations SET {change} WHERE id = '{FIRST}'"  # noqa: S608 - ours
        [everything] = await found_after(fixture, statement, LedgerScope())
        assert {each.what.partition(".")[0] for each in everything} == tables


async def test_what_is_long_past_is_not_seen_in_a_sample_of_days(
    fixture: Bookkeeping, names: dict[str, str]
) -> None:
    account = names["ACCOUNT"]
    today = datetime(2026, 3, 12, tzinfo=UTC)
    days = LedgerScope(account, today), LedgerScope(account, today + DAY)
    statement = f"UPDATE account_totals SET used_nano = 1 WHERE account_id = '{account}'"  # noqa: S608 - ours
    assert await found_after(fixture, statement, *days) == [[], []]
    seen, later = await found_after(fixture, "UPDATE account_days SET free_requests = 5", *days)
    assert ([each.what for each in seen], later) == (["account_days.free_requests"], [])


@pytest.fixture
async def without_the_guard(database: Database) -> AsyncIterator[None]:
    """Let a generation have two charges; afterwards it cannot any more."""
    await _execute(database, "DROP INDEX uq_postings_usage_of_generation")
    yield
    await _execute(
        database,
        "DELETE FROM postings WHERE id = 'again'",
        "CREATE UNIQUE INDEX uq_postings_usage_of_generation ON postings (generation_id) "
        "WHERE kind = 'usage'",
    )


async def _execute(database: Database, *statements: str) -> None:
    async with database.writing() as write:
        for statement in statements:
            await write.execute(sa.text(statement))


@pytest.mark.usefixtures("without_the_guard")
async def test_a_generation_that_was_charged_twice_is_named(
    acme: Tenant, fixture: Bookkeeping, database: Database
) -> None:
    await fixture.writer.write([record_for(acme, 1, cost_nano=700)])
    await _execute(
        database,
        "INSERT INTO postings SELECT 'again', account_id, kind, source, destination, "
        "amount_nano, generation_id, NULL, NULL, created_at FROM postings",
    )
    assert set(await fixture.found()) == {
        Difference("usage postings of a generation", FIRST, "2", "1"),
        Difference("account_totals.used_nano", acme.account.id, "700", "1400"),
    }


async def test_no_more_differences_are_named_than_anybody_reads(
    acme: Tenant, fixture: Bookkeeping, database: Database
) -> None:
    await fixture.writer.write([record_for(acme, 1, cost_nano=700)])
    async with database.writing() as write:
        days = ", ".join(f"('{acme.account.id}', 'day {number}', 1)" for number in range(1_005))
        await write.execute(
            sa.text(f"INSERT INTO account_days (account_id, day, free_requests) VALUES {days}")  # noqa: S608 - ours
        )
    found = await fixture.verify()
    assert found.more
    assert len(found.differences) == MOST_DIFFERENCES


class TestSample:
    @pytest.fixture
    def sample(self, ledger: LedgerService, database: Database) -> LedgerSampler:
        return LedgerSampler(ledger, database)

    async def test_comes_round_to_every_account(
        self,
        fixture: Bookkeeping,
        sample: LedgerSampler,
        database: Database,
        clock: FakeClock,
        ids: SequentialIds,
    ) -> None:
        tenants = [
            await add_tenant(database, clock=clock, ids=ids, name=f"Account {number}")
            for number in range(2 * SAMPLED_ACCOUNTS + 1)
        ]
        for tenant in tenants:
            await fixture.add(tenant, PostingKind.GRANT, 5)
            where = f"WHERE account_id = '{tenant.account.id}'"
            await fixture.tamper(f"UPDATE account_totals SET granted_nano = 6 {where}")  # noqa: S608 - ours
        rounds = [await sample.differences() for _ in range(4)]
        some = SAMPLED_ACCOUNTS
        assert [len(each) for each in rounds] == [some, some, 1, some]
        seen = {each.whose for found in rounds[:3] for each in found}
        assert seen == {tenant.account.id for tenant in tenants}

    async def test_looks_at_two_days_alone_of_a_busy_account(
        self, acme: Tenant, fixture: Bookkeeping, database: Database, clock: FakeClock
    ) -> None:
        await fixture.writer.write([record_for(acme, 1), record_for(acme, 2)])
        async with database.reading() as read:
            calm = await LedgerService(clock, most_requests=2).scope_of(read, acme.account.id)
            busy = await LedgerService(clock, most_requests=1).scope_of(read, acme.account.id)
        assert calm == LedgerScope(acme.account.id)
        assert busy == LedgerScope(acme.account.id, datetime(2026, 3, 11, tzinfo=UTC))


async def test_charges_that_were_gone_from_the_journal_are_a_difference(
    database: Database, clock: FakeClock
) -> None:
    ledger = LedgerService(clock, missing=lambda: [MissingCharges("a.log", 300, 0)])
    async with database.reading() as read:
        found = await ledger.verify(read)
    assert list(found.differences) == [Difference("journal", "a.log", "0 bytes", "300 bytes")]
