"""What is on its way to the books: it counts until they have it, and is not forgotten before."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from tollhouse.accounting.admission.accounts import AccountState, KeyState
from tollhouse.accounting.admission.types import AccountFacts, KeyFacts, Rate
from tollhouse.accounting.types import Credits, KeyLimit, Reset, Spend

if TYPE_CHECKING:
    from collections.abc import Callable

TODAY = date(2026, 3, 12)
"""A Thursday."""
YESTERDAY = TODAY - timedelta(days=1)
RATE = Rate("requests-per-min", "acme/large", 3)
BOTH = KeyLimit(100, include_byok=True)


def account() -> AccountState:
    return AccountState()


def key(limit: KeyLimit) -> KeyState:
    found = KeyState("k")
    found.load(KeyFacts(limit))
    return found


class TestAnAccount:
    def test_of_which_nothing_is_known_is_idle(self) -> None:
        assert account().idle(0.0)

    @pytest.mark.parametrize(
        "happens",
        [
            lambda state: state.in_flight.begin(1),
            lambda state: setattr(state, "free_held", 1),
            lambda state: state.charged(1, free_day=None),
            lambda state: state.charged(0, free_day=TODAY),
            lambda state: setattr(state.key("k"), "held_nano", 1),
            lambda state: state.key("k").charged(TODAY, Spend(1)),
            lambda state: state.minute(RATE).take(0.0),
        ],
        ids=["hold", "free hold", "cost", "free", "key's hold", "key's cost", "minute"],
    )
    def test_is_not_idle_while_it_has(self, happens: Callable[[AccountState], None]) -> None:
        state = account()
        happens(state)
        assert not state.idle(59.0)

    def test_is_idle_when_its_settlement_window_and_its_minute_are_over(self) -> None:
        state = account()
        state.in_flight.begin(1)
        state.in_flight.end(1, 1, 0.0, 60.0)
        state.minute(RATE).take(0.0)
        assert not state.idle(59.0)
        assert state.idle(60.0)

    def test_owes_every_cost_that_the_books_lack(self) -> None:
        state = account()
        for cost in (3, 2):
            state.charged(cost, free_day=None)
        state.load(AccountFacts(credits=Credits(purchased_nano=10)))
        assert state.balance_nano == 5

    def test_adds_the_free_requests_that_the_books_lack(self) -> None:
        state = account()
        for _ in range(3):
            state.charged(0, free_day=TODAY)
        state.booked(0, free_day=TODAY)
        state.load(AccountFacts(free_requests={TODAY: 1}))
        assert state.free_used(TODAY) == 3
        state.booked(0, free_day=TODAY)
        assert not state.idle(0.0)
        state.booked(0, free_day=TODAY)
        state.load(AccountFacts(free_requests={TODAY: 3}))
        assert state.free_used(TODAY) == 3
        assert state.idle(0.0)

    def test_adds_the_free_requests_of_a_day_that_the_books_do_not_know(self) -> None:
        state = account()
        state.charged(0, free_day=TODAY)
        state.load(AccountFacts())
        assert state.free_used(TODAY) == 1

    def test_counts_free_requests_of_a_new_day_from_none(self) -> None:
        state = account()
        state.charged(0, free_day=TODAY)
        assert state.free_used(TODAY + timedelta(days=1)) == 0


class TestAKey:
    def test_adds_the_spend_that_the_books_lack(self) -> None:
        state = key(BOTH)
        state.charged(TODAY, Spend(7, 5))
        state.charged(TODAY, Spend(3, 2))
        state.booked(TODAY, Spend(7, 5))
        state.load(KeyFacts(BOTH, Spend(7, 5), {TODAY: Spend(7, 5)}))
        assert state.used_nano(TODAY) == 17
        assert not state.idle
        state.booked(TODAY, Spend(3, 2))
        state.load(KeyFacts(BOTH, Spend(10, 7), {TODAY: Spend(10, 7)}))
        assert state.used_nano(TODAY) == 17
        assert state.idle

    def test_that_only_own_provider_keys_used_is_not_idle_before_it_is_booked(self) -> None:
        state = key(BOTH)
        state.charged(TODAY, Spend(0, 5))
        assert not state.idle
        state.booked(TODAY, Spend(0, 5))
        assert state.idle

    def test_does_not_count_the_spend_of_an_earlier_window(self) -> None:
        state = key(KeyLimit(100, Reset.DAILY))
        assert state.used_nano(TODAY) == 0
        state.charged(YESTERDAY, Spend(7))
        assert state.used_nano(TODAY) == 0

    def test_counts_every_spend_of_each_day_of_its_window(self) -> None:
        state = key(KeyLimit(100, Reset.WEEKLY))
        for day in (YESTERDAY, YESTERDAY, TODAY):
            state.charged(day, Spend(7))
        assert state.used_nano(TODAY) == 21

    def test_counts_every_spend_of_a_day_once_its_window_begins(self) -> None:
        state = key(KeyLimit(100, Reset.DAILY))
        tomorrow = TODAY + timedelta(days=1)
        for nano in (7, 3):
            state.charged(tomorrow, Spend(nano))
        assert state.used_nano(tomorrow) == 10
