"""Keys with limits, made and read with the published `openrouter` library, 1.3.84."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contract.conftest import Gateway

COST = 3 * 0.000_001 + 3 * 0.000_002
LIMIT = 25.000000001
PERIODS = ("usage", "usage_daily", "usage_weekly", "usage_monthly")


@pytest.fixture(scope="module")
def seen(gateway: Gateway) -> dict[str, Any]:
    return gateway.run("openrouter", "check_keys.py")


def limits_in(key: dict[str, Any]) -> tuple[Any, ...]:
    names = ("limit", "limit_reset", "limit_remaining", "include_byok_in_limit")
    return tuple(key[name] for name in names)


def next_resets() -> dict[str, set[datetime]]:
    """Return when windows end, for now and for a minute ago: the library ran in between."""
    found: dict[str, set[datetime]] = {"daily": set(), "weekly": set(), "monthly": set()}
    for ago in (0, 1):
        now = datetime.now(UTC) - timedelta(minutes=ago)  # noqa: TID251 - the server's own clock
        today = now.replace(hour=0, minute=0, second=0, microsecond=0)
        found["daily"].add(today + timedelta(days=1))
        found["weekly"].add(today + timedelta(days=7 - today.weekday()))
        found["monthly"].add((today.replace(day=1) + timedelta(days=31)).replace(day=1))
    return found


def assert_budget(key: dict[str, Any], limit: float, spent: float, interval: str) -> None:
    """Check that a key has one budget, which is the effective one, and ends when it should."""
    assert key["budgets"] == [key["effective_budget"]]
    budget = dict(key["effective_budget"])
    reset = datetime.fromisoformat(budget.pop("resets_at"))
    assert reset in next_resets()[interval]
    assert budget == {
        "scope": "key_limit",
        "budget_id": None,
        "guardrail_id": None,
        "limit_usd": pytest.approx(limit, rel=1e-9),
        "spend_usd": pytest.approx(spent, rel=1e-9),
        "remaining_usd": pytest.approx(limit - spent, rel=1e-9),
        "reset_interval": interval,
        "include_byok": True,
    }


def test_a_new_key_has_the_limit_it_was_given(seen: dict[str, Any]) -> None:
    assert limits_in(seen["made"]) == (LIMIT, "monthly", LIMIT, True)
    fresh = seen["fresh"]
    assert limits_in(fresh) == limits_in(seen["made"])
    assert [fresh[name] for name in PERIODS] == [0, 0, 0, 0]
    assert_budget(fresh, LIMIT, 0, "monthly")


def test_a_keys_requests_count_against_its_limit(seen: dict[str, Any]) -> None:
    assert seen["costs"] == pytest.approx([COST, COST], rel=1e-12)
    used = seen["used"]
    assert [used[name] for name in PERIODS] == pytest.approx([2 * COST] * 4, rel=1e-12)
    assert [used[f"byok_{name}"] for name in PERIODS] == [0, 0, 0, 0]
    assert used["limit_remaining"] == pytest.approx(LIMIT - 2 * COST, abs=1e-10)
    assert_budget(used, LIMIT, 2 * COST, "monthly")


def test_a_manager_reads_the_same_key(seen: dict[str, Any]) -> None:
    got = seen["got"]
    assert seen["listed"] == [got]
    assert limits_in(got) == limits_in(seen["used"])
    assert [got[name] for name in PERIODS] == [seen["used"][name] for name in PERIODS]
    assert got["last_used_at"] is not None
    assert got["updated_at"] is None
    assert (got["name"], got["disabled"], got["label"]) == ("limited", False, seen["made"]["label"])
    assert got["workspace_id"] == seen["used"]["workspace_id"]


def test_a_limit_below_what_is_used_has_nothing_left(seen: dict[str, Any]) -> None:
    assert limits_in(seen["lowered"]) == (0.000012, "daily", 0, True)
    assert limits_in(seen["overdrawn"]) == (0.000012, "daily", 0, True)
    assert_budget(seen["overdrawn"], 0.000012, 2 * COST, "daily")


def test_a_change_leaves_what_it_does_not_name(seen: dict[str, Any]) -> None:
    assert seen["renamed"]["name"] == "renamed"
    assert limits_in(seen["renamed"]) == limits_in(seen["lowered"])
    assert seen["renamed"]["updated_at"] is not None


def test_each_limit_window_has_its_own_reset(seen: dict[str, Any]) -> None:
    left = pytest.approx(5 - 2 * COST, rel=1e-12)
    assert limits_in(seen["weekly"]) == (5, "weekly", left, True)
    assert_budget(seen["own_weekly"], 5, 2 * COST, "weekly")


def test_nulls_clear_the_limit(seen: dict[str, Any]) -> None:
    assert limits_in(seen["cleared"]) == (None, None, None, False)
    own = seen["own_cleared"]
    assert limits_in(own) == (None, None, None, False)
    assert (own["budgets"], own["effective_budget"]) == ([], None)


def test_a_disabled_key_is_refused_and_listed_where_that_is_asked(seen: dict[str, Any]) -> None:
    assert seen["disabled"]["disabled"] is True
    refused = seen["while_disabled"]
    assert (refused["class"], refused["status"]) == ("UnauthorizedResponseError", 401)
    assert seen["listed_disabled"] == [[], ["renamed"]]


def test_a_deleted_key_is_gone(seen: dict[str, Any]) -> None:
    assert list(seen["deleted"].values()) == [True]
    refused = seen["once_deleted"]
    assert (refused["class"], refused["status"]) == ("NotFoundResponseError", 404)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("negative", "limit: must not be negative."),
        ("too_fine", "limit: the amount is finer than a billionth of a credit."),
        ("too_large", "limit: the amount is too large."),
        ("nothing", "No update fields provided."),
    ],
)
def test_an_invalid_setting_of_a_key_is_refused(
    seen: dict[str, Any], what: str, message: str
) -> None:
    assert seen["refused"][what] == {
        "class": "BadRequestResponseError",
        "status": 400,
        "message": message,
    }


@pytest.mark.parametrize(
    ("operation", "error", "status"),
    [
        ("list", "UnauthorizedResponseError", 401),
        ("get", "UnauthorizedResponseError", 401),
        ("delete", "UnauthorizedResponseError", 401),
        ("create", "ForbiddenResponseError", 403),
        ("update", "ForbiddenResponseError", 403),
        ("inference", "ForbiddenResponseError", 403),
    ],
)
def test_a_key_of_the_wrong_kind_is_refused(
    seen: dict[str, Any], operation: str, error: str, status: int
) -> None:
    refused = seen["refused"][operation]
    assert (refused["class"], refused["status"]) == (error, status)
