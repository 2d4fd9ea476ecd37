from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.accounting import (
    Budget,
    BudgetScope,
    KeyLimit,
    KeyStatus,
    KeyUsage,
    Reset,
    Spend,
    effective_budget,
    key_status,
)

TODAY = date(2026, 3, 12)
USAGE = KeyUsage(
    total=Spend(1_000, 4_000), daily=Spend(1, 4), weekly=Spend(10, 40), monthly=Spend(100, 400)
)
scopes = st.sampled_from(BudgetScope)
amounts = st.integers(0, 6)
budgets = st.lists(st.builds(Budget, scopes, amounts, amounts), max_size=8)


def budget(scope: str, limit: int, spend: int = 0) -> Budget:
    return Budget(BudgetScope(scope), limit, spend)


class TestOfAKeysLimit:
    @pytest.mark.parametrize(
        ("reset", "spend", "resets_at"),
        [
            (None, 1_000, None),
            (Reset.DAILY, 1, datetime(2026, 3, 13, tzinfo=UTC)),
            (Reset.WEEKLY, 10, datetime(2026, 3, 16, tzinfo=UTC)),
            (Reset.MONTHLY, 100, datetime(2026, 4, 1, tzinfo=UTC)),
        ],
    )
    def test_it_counts_the_current_window(
        self, reset: Reset | None, spend: int, resets_at: datetime | None
    ) -> None:
        found = key_status(KeyLimit(5_000, reset), USAGE, TODAY).own_budget
        assert found == Budget(BudgetScope.KEY_LIMIT, 5_000, spend, reset, resets_at)
        assert found.remaining_nano == 5_000 - spend

    @pytest.mark.parametrize(
        ("reset", "spend"),
        [(None, 5_000), (Reset.DAILY, 5), (Reset.WEEKLY, 50), (Reset.MONTHLY, 500)],
    )
    def test_it_counts_own_provider_keys_where_it_shall(
        self, reset: Reset | None, spend: int
    ) -> None:
        limit = KeyLimit(9_000, reset, include_byok=True)
        found = key_status(limit, USAGE, TODAY).own_budget
        assert found is not None
        assert (found.spend_nano, found.include_byok) == (spend, True)

    def test_lowered_below_what_is_used_nothing_is_left(self) -> None:
        status = key_status(KeyLimit(999), USAGE, TODAY)
        assert status.remaining_nano == 0
        assert [(each.remaining_nano, each.is_spent) for each in status.budgets] == [(-1, True)]

    def test_the_remainder_is_the_keys_own(self) -> None:
        others = (budget("workspace", 3), budget("key_limit", 7, 1), budget("member", 1))
        assert KeyStatus(budgets=others).remaining_nano == 6
        assert KeyStatus(budgets=others[:1]).remaining_nano is None

    def test_the_remainder_is_without_what_batches_have_reserved(self) -> None:
        statuses = [key_status(KeyLimit(1_009), USAGE, TODAY, n) for n in (0, 3, 9, 12)]
        assert [each.remaining_nano for each in statuses] == [9, 6, 0, 0]
        assert {each.budgets[0].remaining_nano for each in statuses} == {9}


class TestTheEffectiveOne:
    @given(budgets)
    def test_is_what_the_wires_own_words_say(self, given: list[Budget]) -> None:
        in_order = [each for scope in BudgetScope for each in given if each.scope is scope]
        spent = [each for each in in_order if each.spend_nano >= each.limit_nano]
        least = min((each.limit_nano - each.spend_nano for each in in_order), default=0)
        expected = next(
            iter(spent or [b for b in in_order if b.limit_nano - b.spend_nano == least]), None
        )
        assert effective_budget(given) is expected

    def test_the_order_of_enforcement_is_the_published_one(self) -> None:
        assert [scope.value for scope in BudgetScope] == [
            "workspace_default_member",
            "workspace_default_key",
            "member",
            "end_user",  # ours
            "api_key",
            "workspace",
            "key_limit",
            "account",  # ours, too
            "free_requests",
        ]
