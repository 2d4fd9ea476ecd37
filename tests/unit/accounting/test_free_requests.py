import pytest

from tollhouse.accounting.limits import AccountingRules
from tollhouse.accounting.policy import free_requests
from tollhouse.accounting.types import Credits, FreeRequests

CREDIT = 1_000_000_000


@pytest.mark.parametrize(
    ("purchased", "limit"),
    [(0, 50), (9 * CREDIT - 1, 50), (9 * CREDIT, 1_000), (CREDIT * 99, 1_000)],
)
def test_nine_purchased_credits_raise_the_ceiling(purchased: int, limit: int) -> None:
    assert free_requests(Credits(purchased_nano=purchased), 0, AccountingRules()) == FreeRequests(
        0, limit, limit
    )


def test_granted_credits_do_not() -> None:
    assert free_requests(Credits(granted_nano=99 * CREDIT), 0, AccountingRules()).limit == 50


@pytest.mark.parametrize(("used", "remaining"), [(1, 49), (50, 0), (51, 0)])
def test_what_is_left_is_never_negative(used: int, remaining: int) -> None:
    assert free_requests(Credits(), used, AccountingRules()) == FreeRequests(used, 50, remaining)
