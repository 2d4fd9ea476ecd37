"""What is wrong with the books, in words, and the arithmetic of a statement."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.accounting.ledger.types import (
    SUM,
    Difference,
    Movement,
    Statement,
    of_balances,
    of_charge,
    of_counters,
    of_lost_generation,
    of_several_charges,
    of_sides,
    running_balances,
)


class TestCounters:
    def test_that_are_right_are_no_difference(self) -> None:
        row = {"account_id": "a", "stored_used_nano": 5, "recomputed_used_nano": 5}
        assert list(of_counters("account_totals", ["account_id"], ["used_nano"], row)) == []

    def test_that_are_not_are_named_with_both_values(self) -> None:
        row = {
            "key_hash": "k",
            "day": "2026-03-12",
            "stored_usage_nano": 5,
            "recomputed_usage_nano": 7,
            "stored_requests": 1,
            "recomputed_requests": 1,
        }
        found = of_counters("key_days", ["key_hash", "day"], ["usage_nano", "requests"], row)
        assert list(found) == [Difference("key_days.usage_nano", "k 2026-03-12", "5", "7")]


class TestSides:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("purchase", "purchases -> customer:a"),
            ("grant", "grants -> customer:a"),
            ("refund", "customer:a -> purchases"),
            ("adjustment", "adjustments -> customer:a, or back"),
            ("usage", "customer:a -> revenue"),
        ],
    )
    def test_are_named_with_those_of_the_kind(self, kind: str, expected: str) -> None:
        row = {"id": "p", "account_id": "a", "kind": kind, "source": "x", "destination": "y"}
        assert list(of_sides(row)) == [
            Difference("postings.source, destination", "p", "x -> y", expected)
        ]


class TestCharges:
    ROW = {  # noqa: RUF012 - never changed
        "id": "g",
        "cost_nano": 5,
        "account_id": "a",
        "created_at": 1,
        "posting_id": "usage-g",
        "posting_amount_nano": 5,
        "posting_account_id": "a",
        "posting_created_at": 1,
    }

    def test_that_are_missing_are_named_with_the_cost(self) -> None:
        (found,) = of_charge({**self.ROW, "posting_id": None})
        assert found == Difference("usage posting of a generation", "g", None, "5")

    @pytest.mark.parametrize(
        ("name", "stored", "recomputed"),
        [("amount_nano", 6, "5"), ("account_id", "b", "a"), ("created_at", 2, "1")],
    )
    def test_that_are_not_the_generation_s_are_named(
        self, name: str, stored: object, recomputed: str
    ) -> None:
        (found,) = of_charge({**self.ROW, f"posting_{name}": stored})
        what = f"usage posting of a generation: {name}"
        assert found == Difference(what, "g", str(stored), recomputed)

    def test_that_were_made_twice_are_named(self) -> None:
        (found,) = of_several_charges({"id": "g", "count": 2})
        assert found == Difference("usage postings of a generation", "g", "2", "1")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("usage", "generation of a usage posting"),
        ("adjustment", "generation of an adjustment posting"),
    ],
)
def test_a_generation_that_is_not_there_is_named_by_its_posting(kind: str, what: str) -> None:
    (found,) = of_lost_generation({"id": "p", "kind": kind, "generation_id": "g"})
    assert found == Difference(what, "p", None, "g")


def test_accounts_of_the_ledger_that_do_not_add_up_to_zero_are_named() -> None:
    assert list(of_balances({"purchases": -5, "customers": 5})) == []
    assert list(of_balances({"purchases": -5, "customers": 6})) == [
        Difference(SUM, "ledger", "1", "0")
    ]


def movement(change_nano: int) -> Movement:
    return Movement(None, date(2026, 3, 12), "usage", change_nano, 1, None, None, None, None)


@given(st.integers(-(10**18), 10**18), st.lists(st.integers(-(10**18), 10**18)))
def test_balances_run_from_the_opening_one_to_the_closing_one(
    opening: int, changes: list[int]
) -> None:
    lines = running_balances(opening, [movement(change) for change in changes])
    statement = Statement("a", opening, sum(changes), lines, len(lines))
    assert [line.movement.change_nano for line in lines] == changes
    for before, line in zip([opening, *(each.balance_nano for each in lines)], lines, strict=False):
        assert line.balance_nano == before + line.movement.change_nano
    assert statement.closing_nano == (lines[-1].balance_nano if lines else opening)
