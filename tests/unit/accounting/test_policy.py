from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import START
from tests.support.seams.accounting import (
    AccountingRules,
    Credits,
    KeyUsage,
    Posting,
    PostingKind,
    Spend,
    balance_change,
    check_credits,
    credit_posting,
    credits_change,
    first_day_of_windows,
    is_same_posting,
    key_usage,
    rules_of,
)
from tollhouse.kernel.errors import Conflict, Invalid
from tollhouse.kernel.money import MAX_NANO
from tollhouse.settings.sections import ByokSettings, LimitsSettings

DAY = timedelta(days=1)
THURSDAY = datetime(2026, 3, 12, 10, 30, tzinfo=UTC)

instants = st.datetimes(
    datetime(2020, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    datetime(2035, 1, 1),  # noqa: DTZ001 - the same
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))]),
)
spends = st.builds(Spend, st.integers(0, 10**15), st.integers(0, 10**15))
# Days before now, counted back, so that most of them matter.
histories = st.dictionaries(st.integers(-3, 70), spends, max_size=40)


def usage(days: dict[date, Spend], now: datetime = THURSDAY) -> KeyUsage:
    return key_usage(Spend(), days, now, None)


class TestWindows:
    @given(histories, instants)
    def test_agree_with_counting_day_by_day(self, history: dict[int, Spend], now: datetime) -> None:
        today = now.astimezone(UTC).date()
        days = {today - back * DAY: spend for back, spend in history.items()}

        daily = weekly = monthly = Spend()
        for day, spend in days.items():
            # What was booked before the clock was set back counts as well.
            later = day > today
            if later or day == today:
                daily += spend
            if later or day.isocalendar()[:2] == today.isocalendar()[:2]:
                weekly += spend
            if later or (day.year, day.month) == (today.year, today.month):
                monthly += spend

        assert usage(days, now) == KeyUsage(Spend(), daily, weekly, monthly, None)

    @given(histories, instants)
    def test_need_no_day_before_the_first_one_asked_for(
        self, history: dict[int, Spend], now: datetime
    ) -> None:
        days = {now.astimezone(UTC).date() - back * DAY: spend for back, spend in history.items()}
        asked = {day: spend for day, spend in days.items() if day >= first_day_of_windows(now)}
        assert usage(asked, now) == usage(days, now)

    @given(instants)
    def test_ask_for_a_month_and_a_week_at_most(self, now: datetime) -> None:
        assert now.astimezone(UTC).date() - first_day_of_windows(now) < timedelta(days=31)


def credit(**changes: object) -> Posting:
    facts: dict[str, object] = {
        "account_id": "acme",
        "kind": PostingKind.PURCHASE,
        "amount_nano": 5,
        **changes,
    }
    return credit_posting("p", now=START, **facts)  # pyright: ignore[reportArgumentType]


def adjustment(amount_nano: int, **changes: object) -> Posting:
    facts = {"kind": PostingKind.ADJUSTMENT, "note": "an error", **changes}
    return credit(amount_nano=amount_nano, **facts)


def refund(amount_nano: int) -> Posting:
    return credit(kind=PostingKind.REFUND, amount_nano=amount_nano)


class TestCredits:
    @pytest.mark.parametrize(
        ("posting", "source", "destination", "gain", "change"),
        [
            (credit(), "purchases", "customer:acme", 5, Credits(purchased_nano=5)),
            (credit(kind=PostingKind.GRANT), "grants", "customer:acme", 5, Credits(granted_nano=5)),
            (refund(5), "customer:acme", "purchases", -5, Credits(refunded_nano=5)),
            (adjustment(5), "adjustments", "customer:acme", 5, Credits(adjusted_nano=5)),
            (adjustment(-5), "customer:acme", "adjustments", -5, Credits(adjusted_nano=-5)),
        ],
    )
    def test_move_between_two_accounts_of_the_ledger(
        self, posting: Posting, source: str, destination: str, gain: int, change: Credits
    ) -> None:
        assert (posting.source, posting.destination) == (source, destination)
        assert posting.amount_nano == 5
        assert balance_change(posting) == gain
        assert credits_change(posting) == change
        assert change.balance_nano == gain

    @pytest.mark.parametrize(
        ("facts", "message"),
        [
            ({"amount_nano": 0}, "must be a positive number"),
            ({"amount_nano": -1}, "must be a positive number"),
            ({"kind": PostingKind.REFUND, "amount_nano": -1}, "must be a positive number"),
            ({"generation_id": "g"}, "Only an adjustment can name a generation"),
            ({"kind": PostingKind.ADJUSTMENT, "note": None}, "needs a note"),
            ({"kind": PostingKind.ADJUSTMENT, "note": " "}, "needs a note"),
            ({"kind": PostingKind.ADJUSTMENT, "amount_nano": 0}, "must not be zero"),
        ],
    )
    def test_need_facts_that_make_a_posting(self, facts: dict[str, object], message: str) -> None:
        with pytest.raises(Invalid, match=message):
            credit(**facts)

    def test_asked_for_again_are_the_same(self) -> None:
        assert is_same_posting(credit(), credit(note="again"))

    @pytest.mark.parametrize(
        "other", [{"amount_nano": 6}, {"kind": PostingKind.GRANT}, {"account_id": "other"}]
    )
    def test_are_not_the_same_where_something_counts(self, other: dict[str, object]) -> None:
        assert not is_same_posting(credit(), credit(**other))

    def test_given_and_taken_are_not_the_same(self) -> None:
        assert not is_same_posting(adjustment(5), adjustment(-5))
        assert not is_same_posting(adjustment(5), adjustment(5, generation_id="g"))


class TestCheckOfCredits:
    def test_a_refund_is_no_larger_than_the_purchases_that_were_kept(self) -> None:
        held = Credits(purchased_nano=9_000_000_000, granted_nano=5, refunded_nano=500_000_000)
        check_credits(held, refund(8_500_000_000))
        with pytest.raises(Conflict, match=r"No more than 8\.5 credits of purchases"):
            check_credits(held, refund(8_500_000_001))

    def test_a_refund_may_leave_a_debt(self) -> None:
        check_credits(Credits(purchased_nano=5, used_nano=5), refund(5))

    @pytest.mark.parametrize(
        ("held", "posting"),
        [
            (Credits(purchased_nano=MAX_NANO), credit(amount_nano=1)),
            (Credits(granted_nano=MAX_NANO), credit(amount_nano=1)),
            (Credits(purchased_nano=MAX_NANO, refunded_nano=MAX_NANO), credit(amount_nano=1)),
            (Credits(adjusted_nano=-MAX_NANO), adjustment(-1)),
            (Credits(adjusted_nano=-MAX_NANO, granted_nano=MAX_NANO), adjustment(-1)),
        ],
    )
    def test_no_total_grows_beyond_what_can_be_counted(
        self, held: Credits, posting: Posting
    ) -> None:
        with pytest.raises(Invalid, match="more credits than can be counted"):
            check_credits(held, posting)

    def test_a_total_may_be_as_large_as_can_be_counted(self) -> None:
        check_credits(Credits(), credit(amount_nano=MAX_NANO))
        check_credits(Credits(granted_nano=MAX_NANO), adjustment(-MAX_NANO))


# The operator's numbers, from credits in the settings to nano-credits


CREDIT = 1_000_000_000


def test_every_setting_reaches_its_rule() -> None:
    settings = LimitsSettings(
        in_flight_fraction=Decimal("0.25"),
        in_flight_ceiling=Decimal(3),
        in_flight_request_cap=Decimal("0.5"),
        in_flight_threshold=Decimal(7),
        in_flight_new_accounts=True,
        settlement_seconds=11.0,
        admission_wait_seconds=13.0,
        free_requests_per_minute=17,
        free_requests_per_day=19,
        free_requests_per_day_raised=23,
        free_raised_from=Decimal(29),
        free_raised_tolerance=Decimal(2),
        limit_source_prefix="ours_",
    )
    byok = ByokSettings(fee_percent=Decimal("2.5"), free_requests_a_month=3)
    assert rules_of(settings, byok) == AccountingRules(
        fraction=Fraction(1, 4),
        ceiling_nano=3 * CREDIT,
        request_cap_nano=CREDIT // 2,
        threshold_nano=7 * CREDIT,
        new_accounts=True,
        settlement_seconds=11.0,
        wait_seconds=13.0,
        free_per_minute=17,
        free_per_day=19,
        free_per_day_raised=23,
        raised_from_nano=27 * CREDIT,
        source_prefix="ours_",
        own_fee=Fraction(1, 40),
        free_own_a_month=3,
    )


def test_a_tolerance_larger_than_what_is_enough_asks_for_nothing() -> None:
    settings = LimitsSettings(free_raised_from=Decimal(1), free_raised_tolerance=Decimal(2))
    assert rules_of(settings, ByokSettings()).raised_from_nano == 0
