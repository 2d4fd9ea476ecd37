"""Whether the books are right, on both databases: they are, and each thing that is not is named."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.component.accounting.ledger_reader import record_for
from tests.support.builders import Tenant, add_tenant, charge
from tests.support.clock import START, FakeClock
from tests.support.ids import SequentialIds
from tollhouse.accounting.ledger.service import (
    MOST_DIFFERENCES,
    SAMPLED_ACCOUNTS,
    LedgerSampler,
    LedgerService,
)
from tollhouse.accounting.ledger.types import Difference, LedgerReport, LedgerScope
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.journal import MissingCharges
from tollhouse.accounting.settlement.settler import ChargeWriter
from tollhouse.accounting.types import CostState, GenerationRecord, PostingKind, Usage
from tollhouse.kernel.errors import Conflict
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database

DAY = timedelta(days=1)
PAYER = "p" * 64
FIRST = "gen-1773311400-" + f"{1:020x}"


class AccountingFixture:
    """Moves money, looks at the books and tampers with them."""

    def __init__(
        self,
        database: Database,
        accounting: AccountingService,
        ledger: LedgerService,
        writer: ChargeWriter,
    ) -> None:
        self.database = database
        self.accounting = accounting
        self.ledger = ledger
        self.writer = writer

    async def add(
        self, tenant: Tenant, kind: PostingKind, nano: int, generation_id: str | None = None
    ) -> str:
        async with self.database.writing() as write:
            posting = await self.accounting.add_credits(
                write, tenant.account.id, kind, nano, generation_id=generation_id, note="a note"
            )
        return posting.id

    async def verify(self, scope: LedgerScope | None = None) -> LedgerReport:
        async with self.database.reading() as read:
            return await self.ledger.verify(read, scope or LedgerScope())

    async def found(self, scope: LedgerScope | None = None) -> list[Difference]:
        return list((await self.verify(scope)).differences)

    async def tamper(self, statement: str) -> None:
        async with self.database.writing() as write:
            changed = await write.execute(sa.text(statement))
            assert changed.rowcount == 1, statement


@pytest.fixture
def ledger(clock: FakeClock) -> LedgerService:
    return LedgerService(clock)


@pytest.fixture
def fixture(
    database: Database, service: AccountingService, ledger: LedgerService, writer: ChargeWriter
) -> AccountingFixture:
    return AccountingFixture(database, service, ledger, writer)


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
    fixture: AccountingFixture, tenants: list[Tenant], dice: random.Random, steps: int
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


@pytest.mark.parametrize("seed", range(3))
async def test_books_that_nobody_tampered_with_are_right(
    acme: Tenant, other: Tenant, fixture: AccountingFixture, seed: int
) -> None:
    await live(fixture, [acme, other], random.Random(seed), 40)
    found = await fixture.verify()
    assert (found.differences, found.more) == ([], False)
    assert found.postings > 10
    assert found.generations > 10
    assert sum(found.balances.values()) == 0
    for tenant in (acme, other):
        assert await fixture.found(LedgerScope((tenant.account.id,))) == []
        assert (
            await fixture.found(LedgerScope((tenant.account.id,), START.replace(hour=0, minute=0)))
            == []
        )


async def test_empty_books_are_right(fixture: AccountingFixture) -> None:
    assert await fixture.verify() == LedgerReport(0, 0, {}, [], more=False)


async def test_balances_are_exact_where_they_are_large(
    acme: Tenant, other: Tenant, fixture: AccountingFixture
) -> None:
    for tenant in (acme, other):
        await fixture.add(tenant, PostingKind.PURCHASE, MAX_NANO)
    found = await fixture.verify()
    assert found.balances == {"customers": 2 * MAX_NANO, "purchases": -2 * MAX_NANO}
    assert found.differences == []


class TestPayer:
    """Counters of a key that answers for another one are recomputed, too."""

    @pytest.fixture(autouse=True)
    async def books(self, acme: Tenant, fixture: AccountingFixture) -> None:
        """Two generations of an intern, one of the key that answers for it."""
        self.fixture, self.scope = fixture, LedgerScope((acme.account.id,))
        await fixture.writer.write(
            [
                record_for(acme, 1, cost_nano=7, key_hash="intern", payer_hash=PAYER),
                record_for(
                    acme,
                    2,
                    key_hash="intern",
                    payer_hash=PAYER,
                    is_byok=True,
                    charge=charge(0, provider_cost_nano=8),
                ),
                record_for(acme, 3, cost_nano=5, key_hash=PAYER),
            ]
        )
        assert await fixture.found() == []
        assert await fixture.found(self.scope) == []

    async def after(self, statement: str) -> set[tuple[str, str]]:
        await self.fixture.tamper(statement)
        found = await self.fixture.found()
        assert await self.fixture.found(self.scope) == found
        return {(each.what, each.whose) for each in found}

    @pytest.mark.parametrize("name", ["usage_nano", "byok_usage_nano", "last_used_at"])
    async def test_with_another_total_is_named(self, name: str) -> None:
        found = await self.after(
            f"UPDATE key_totals SET {name} = {name} - 1 WHERE key_hash = '{PAYER}'"  # noqa: S608 - ours
        )
        assert found == {(f"key_totals.{name}", PAYER)}

    @pytest.mark.parametrize("name", ["usage_nano", "byok_usage_nano", "requests"])
    async def test_with_another_day_is_named(self, name: str) -> None:
        found = await self.after(
            f"UPDATE key_days SET {name} = {name} + 1 WHERE key_hash = '{PAYER}'"  # noqa: S608 - ours
        )
        assert found == {(f"key_days.{name}", f"{PAYER} 2026-03-12")}

    async def test_that_a_generation_lost_is_named(self) -> None:
        found = await self.after("UPDATE generations SET payer_hash = NULL WHERE is_byok")
        day = f"{PAYER} 2026-03-12"
        assert found == {
            ("key_totals.byok_usage_nano", PAYER),
            ("key_days.byok_usage_nano", day),
            ("key_days.requests", day),
        }


class TestTampering:
    """One row is changed past the program, and named."""

    @pytest.fixture(autouse=True)
    async def books(self, acme: Tenant, other: Tenant, fixture: AccountingFixture) -> None:
        """A posting of each kind and three generations, and another account beside them."""
        self.fixture = fixture
        self.account, self.key = acme.account.id, acme.key.hash
        self.other = other.account.id
        await fixture.writer.write(
            [
                record_for(acme, 1, cost_nano=700, free_limited=True),
                record_for(acme, 2, cost_nano=0),
                record_for(acme, 3, is_byok=True, charge=charge(9, provider_cost_nano=50)),
                record_for(other, 4, cost_nano=5),
            ]
        )
        self.purchase = await fixture.add(acme, PostingKind.PURCHASE, 10_000)
        self.grant = await fixture.add(acme, PostingKind.GRANT, 300)
        self.refund = await fixture.add(acme, PostingKind.REFUND, 2_000)
        self.taken = await fixture.add(acme, PostingKind.ADJUSTMENT, -40, FIRST)
        self.given = await fixture.add(acme, PostingKind.ADJUSTMENT, 90)
        assert await fixture.found() == []

    async def after(self, statement: str) -> set[Difference]:
        await self.fixture.tamper(statement)
        found = await self.fixture.found()
        sample = await self.fixture.found(LedgerScope((self.account,)))
        # One account alone shows the same of it.
        assert set(sample) == {each for each in found if self.is_acmes(each)}
        return set(found)

    def is_acmes(self, difference: Difference) -> bool:
        return self.other not in difference.whose

    @pytest.mark.parametrize(
        ("name", "stored"),
        [
            ("purchased_nano", 10_000),
            ("granted_nano", 300),
            ("used_nano", 709),
            ("refunded_nano", 2_000),
            ("adjusted_nano", 50),
        ],
    )
    async def test_with_a_total_of_an_account(self, name: str, stored: int) -> None:
        found = await self.after(
            f"UPDATE account_totals SET {name} = {name} + 1 WHERE account_id = '{self.account}'"  # noqa: S608 - ours
        )
        assert found == {
            Difference(f"account_totals.{name}", self.account, str(stored + 1), str(stored))
        }

    @pytest.mark.parametrize("name", ["usage_nano", "byok_usage_nano", "last_used_at"])
    async def test_with_a_total_of_a_key(self, name: str) -> None:
        found = await self.after(
            f"UPDATE key_totals SET {name} = {name} - 1 WHERE key_hash = '{self.key}'"  # noqa: S608 - ours
        )
        (only,) = found
        assert (only.what, only.whose) == (f"key_totals.{name}", self.key)
        assert int(only.stored or 0) == int(only.recomputed or 0) - 1

    @pytest.mark.parametrize("name", ["usage_nano", "byok_usage_nano", "requests"])
    async def test_with_a_day_of_a_key(self, name: str) -> None:
        found = await self.after(
            f"UPDATE key_days SET {name} = {name} + 1 WHERE key_hash = '{self.key}'"  # noqa: S608 - ours
        )
        (only,) = found
        assert (only.what, only.whose) == (f"key_days.{name}", f"{self.key} 2026-03-12")

    @pytest.mark.parametrize(
        "name",
        [
            "requests",
            "prompt_tokens",
            "completion_tokens",
            "reasoning_tokens",
            "cached_tokens",
            "usage_nano",
            "byok_usage_nano",
        ],
    )
    async def test_with_the_use_of_a_day(self, name: str) -> None:
        found = await self.after(
            f"UPDATE usage_days SET {name} = {name} + 1 WHERE account_id = '{self.account}'"  # noqa: S608 - ours
        )
        (only,) = found
        assert only.what == f"usage_days.{name}"
        assert only.whose.startswith(f"{self.account} 2026-03-12 {self.key} acme/large acme ")

    async def test_with_a_day_of_an_account(self) -> None:
        found = await self.after("UPDATE account_days SET free_requests = 5")
        whose = f"{self.account} 2026-03-12"
        assert found == {Difference("account_days.free_requests", whose, "5", "1")}

    @pytest.mark.parametrize(
        ("table", "whose", "names"),
        [
            ("account_days", "account_id", {"free_requests"}),
            ("key_totals", "key_hash", {"usage_nano", "byok_usage_nano", "last_used_at"}),
            ("key_days", "key_hash", {"usage_nano", "byok_usage_nano", "requests"}),
        ],
    )
    async def test_by_deleting_counters(self, table: str, whose: str, names: set[str]) -> None:
        value = self.account if whose == "account_id" else self.key
        found = await self.after(f"DELETE FROM {table} WHERE {whose} = '{value}'")  # noqa: S608 - ours
        assert {each.what for each in found} == {f"{table}.{name}" for name in names}
        assert {each.stored for each in found} == {"0"}

    async def test_by_inventing_counters(self) -> None:
        found = await self.after(
            "INSERT INTO account_days (account_id, day, free_requests) "  # noqa: S608 - ours
            f"VALUES ('{self.account}', '2026-03-01', 3)"
        )
        whose = f"{self.account} 2026-03-01"
        assert found == {Difference("account_days.free_requests", whose, "3", "0")}

    @pytest.mark.parametrize(
        ("kind", "name", "stored"),
        [
            ("purchase", "purchased_nano", 10_000),
            ("grant", "granted_nano", 300),
            ("refund", "refunded_nano", 2_000),
        ],
    )
    async def test_with_the_amount_of_a_posting(self, kind: str, name: str, stored: int) -> None:
        found = await self.after(f"UPDATE postings SET amount_nano = 1 WHERE kind = '{kind}'")  # noqa: S608 - ours
        assert found == {Difference(f"account_totals.{name}", self.account, str(stored), "1")}

    async def test_with_the_amount_of_an_adjustment(self) -> None:
        found = await self.after(
            f"UPDATE postings SET amount_nano = 41 WHERE id = '{self.taken}'"  # noqa: S608 - ours
        )
        assert found == {Difference("account_totals.adjusted_nano", self.account, "50", "49")}

    async def test_by_deleting_a_posting(self) -> None:
        found = await self.after(f"DELETE FROM postings WHERE id = '{self.grant}'")  # noqa: S608 - ours
        assert found == {Difference("account_totals.granted_nano", self.account, "300", "0")}

    async def test_with_a_side_of_a_posting(self) -> None:
        found = await self.after(
            f"UPDATE postings SET source = 'grants' WHERE id = '{self.purchase}'"  # noqa: S608 - ours
        )
        sides = (f"grants -> customer:{self.account}", f"purchases -> customer:{self.account}")
        assert found == {Difference("postings.source, destination", self.purchase, *sides)}

    async def test_with_the_direction_of_an_adjustment(self) -> None:
        found = await self.after(
            "UPDATE postings SET source = destination, destination = source "  # noqa: S608 - ours
            f"WHERE id = '{self.given}'"
        )
        assert found == {Difference("account_totals.adjusted_nano", self.account, "50", "-130")}

    async def test_with_the_kind_of_a_posting(self) -> None:
        found = await self.after(f"UPDATE postings SET kind = 'grant' WHERE id = '{self.purchase}'")  # noqa: S608 - ours
        assert {each.what for each in found} == {
            "postings.source, destination",
            "account_totals.purchased_nano",
            "account_totals.granted_nano",
        }

    async def test_with_the_amount_of_a_charge(self) -> None:
        found = await self.after(
            f"UPDATE postings SET amount_nano = 701 WHERE id = 'usage-{FIRST}'"  # noqa: S608 - ours
        )
        assert found == {
            Difference("usage posting of a generation: amount_nano", FIRST, "701", "700"),
            Difference("account_totals.used_nano", self.account, "709", "710"),
        }

    async def test_with_the_time_of_a_charge(self) -> None:
        found = await self.after(
            f"UPDATE postings SET created_at = created_at + 1 WHERE id = 'usage-{FIRST}'"  # noqa: S608 - ours
        )
        assert [each.what for each in found] == ["usage posting of a generation: created_at"]

    async def test_with_the_account_of_a_charge(self) -> None:
        await self.fixture.tamper(
            f"UPDATE postings SET account_id = '{self.other}' WHERE id = 'usage-{FIRST}'"  # noqa: S608 - ours
        )
        assert {(each.what, each.whose) for each in await self.fixture.found()} == {
            ("postings.source, destination", f"usage-{FIRST}"),
            ("usage posting of a generation: account_id", FIRST),
            ("account_totals.used_nano", self.account),
            ("account_totals.used_nano", self.other),
        }

    async def test_by_deleting_a_charge(self) -> None:
        found = await self.after(f"DELETE FROM postings WHERE id = 'usage-{FIRST}'")  # noqa: S608 - ours
        assert found == {
            Difference("usage posting of a generation", FIRST, None, "700"),
            Difference("account_totals.used_nano", self.account, "709", "9"),
        }

    async def test_with_the_cost_of_a_generation(self) -> None:
        found = await self.after(f"UPDATE generations SET cost_nano = 800 WHERE id = '{FIRST}'")  # noqa: S608 - ours
        assert {each.what for each in found} == {
            "usage posting of a generation: amount_nano",
            "key_totals.usage_nano",
            "key_days.usage_nano",
            "usage_days.usage_nano",
        }
        assert {(each.stored, each.recomputed) for each in found} == {("700", "800")}

    async def test_with_the_cost_of_a_free_generation(self) -> None:
        second = FIRST[:-1] + "2"
        found = await self.after(f"UPDATE generations SET cost_nano = 1 WHERE id = '{second}'")  # noqa: S608 - ours
        assert Difference("usage posting of a generation", second, None, "1") in found

    async def test_by_deleting_a_generation(self) -> None:
        found = await self.after(f"DELETE FROM generations WHERE id = '{FIRST}'")  # noqa: S608 - ours
        named = {each for each in found if each.what.startswith("generation")}
        assert named == {
            Difference("generation of a usage posting", f"usage-{FIRST}", None, FIRST),
            Difference("generation of an adjustment posting", self.taken, None, FIRST),
        }
        assert {each.what.partition(".")[0] for each in found - named} == {
            "account_days",
            "key_totals",
            "key_days",
            "usage_days",
        }

    async def test_with_the_generation_of_a_charge(self) -> None:
        found = await self.after(
            f"UPDATE postings SET generation_id = NULL WHERE id = 'usage-{FIRST}'"  # noqa: S608 - ours
        )
        assert found == {
            Difference("usage posting of a generation", FIRST, None, "700"),
            Difference("generation of a usage posting", f"usage-{FIRST}", None, None),
        }

    async def test_with_the_generation_of_an_adjustment(self) -> None:
        fourth = FIRST[:-1] + "4"
        found = await self.after(
            f"UPDATE postings SET generation_id = '{fourth}' WHERE id = '{self.taken}'"  # noqa: S608 - ours
        )
        assert found == {
            Difference("generation of an adjustment posting", self.taken, None, fourth)
        }

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ("key_hash = 'another'", {"key_totals", "key_days", "usage_days"}),
            ("model = 'acme/other'", {"usage_days"}),
            ("provider = NULL", {"usage_days"}),
            ("output_tokens = output_tokens + 1", {"usage_days"}),
            ("free_limited = FALSE", {"account_days"}),
        ],
    )
    async def test_with_what_a_generation_counts_as(self, change: str, named: set[str]) -> None:
        found = await self.after(f"UPDATE generations SET {change} WHERE id = '{FIRST}'")  # noqa: S608 - ours
        assert {each.what.partition(".")[0] for each in found} == named

    async def test_with_what_is_long_past_is_not_seen_in_a_sample_of_days(self) -> None:
        await self.fixture.tamper(
            f"UPDATE account_totals SET used_nano = 1 WHERE account_id = '{self.account}'"  # noqa: S608 - ours
        )
        today = datetime(2026, 3, 12, tzinfo=UTC)
        assert await self.fixture.found(LedgerScope((self.account,), today)) == []
        await self.fixture.tamper("UPDATE account_days SET free_requests = 5")
        assert await self.fixture.found(LedgerScope((self.account,), today + DAY)) == []
        (only,) = await self.fixture.found(LedgerScope((self.account,), today))
        assert only.what == "account_days.free_requests"


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
    acme: Tenant, fixture: AccountingFixture, database: Database
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
    acme: Tenant, fixture: AccountingFixture, database: Database
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
        fixture: AccountingFixture,
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

    async def test_finds_nothing_where_there_is_nobody(self, sample: LedgerSampler) -> None:
        assert await sample.differences() == []

    async def test_looks_at_two_days_alone_of_a_busy_account(
        self, acme: Tenant, fixture: AccountingFixture, database: Database, clock: FakeClock
    ) -> None:
        await fixture.writer.write([record_for(acme, 1), record_for(acme, 2)])
        async with database.reading() as read:
            calm = await LedgerService(clock, most_requests=2).scope_of(read, acme.account.id)
            busy = await LedgerService(clock, most_requests=1).scope_of(read, acme.account.id)
        assert calm == LedgerScope((acme.account.id,))
        assert busy == LedgerScope((acme.account.id,), datetime(2026, 3, 11, tzinfo=UTC))


async def test_charges_that_were_gone_from_the_journal_are_a_difference(
    database: Database, clock: FakeClock
) -> None:
    ledger = LedgerService(clock, missing=lambda: [MissingCharges("a.log", 300, 0)])
    async with database.reading() as read:
        found = await ledger.verify(read)
    assert list(found.differences) == [Difference("journal", "a.log", "0 bytes", "300 bytes")]
