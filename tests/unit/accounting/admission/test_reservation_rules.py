"""Whether credits can be reserved for a batch."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.accounting import (
    AccountFacts,
    AdmissionRefusal,
    Budget,
    BudgetScope,
    CreditLimit,
    Credits,
    Reset,
    limits_shown,
    reservation_refusal,
)
from tests.support.seams.identity import AccountType
from tollhouse.kernel.money import NANO_PER_CREDIT as CREDIT

MIDNIGHT = datetime(2026, 3, 13, tzinfo=UTC)
amounts = st.integers(0, 9)
OWN, PAYER = "own", "payer"
scopes = st.sampled_from([BudgetScope.KEY_LIMIT, BudgetScope.WORKSPACE])
budgets = st.builds(
    Budget, scopes, amounts, amounts, reserved_nano=amounts, owner_id=st.sampled_from([OWN, PAYER])
)
Funds = Sequence[Budget]
"""Limits, and the balance last."""
accounts = st.builds(
    AccountFacts,
    st.sampled_from([AccountType.PREPAID, AccountType.INVOICE]),
    credits=st.builds(Credits, purchased_nano=amounts, used_nano=amounts),
    reserved_nano=amounts,
)


def funds(account: AccountFacts, *limits: Budget) -> Funds:
    return [*limits, account.fill(Budget(BudgetScope.ACCOUNT))]


all_funds = st.builds(
    lambda account, limits: funds(account, *limits), accounts, st.lists(budgets, max_size=3)
)


def funds_of(balance: int = 10 * CREDIT, *limits: Budget, **fields: Any) -> Funds:
    return funds(AccountFacts(credits=Credits(purchased_nano=balance), **fields), *limits)


def limit_of(
    limit: int, spend: int, reserved: int = 0, owner_id: str = OWN, **fields: Any
) -> Budget:
    amounts_ = (each * CREDIT for each in (limit, spend))
    fields |= {"reserved_nano": reserved * CREDIT, "owner_id": owner_id}
    return Budget(BudgetScope.KEY_LIMIT, *amounts_, **fields)


def shown(of: Funds, found: AdmissionRefusal) -> Sequence[CreditLimit]:
    return limits_shown(of, OWN, found)


def refusal(amount_nano: int, of: Funds) -> AdmissionRefusal | None:
    return reservation_refusal(amount_nano, of, OWN)


def refused(amount_nano: int, of: Funds) -> AdmissionRefusal:
    found = refusal(amount_nano, of)
    assert found is not None
    return found


@given(st.integers(1, 9), all_funds)
def test_an_amount_fits_where_it_is_left_everywhere(amount: int, of: Funds) -> None:
    left = [each.limit_nano - each.spend_nano - each.reserved_nano for each in of]
    assert (refusal(amount, of) is None) == all(amount <= each for each in left)


@given(all_funds)
def test_nothing_fits_unless_the_balance_is_negative(of: Funds) -> None:
    assert (refusal(0, of) is None) == (of[-1].remaining_nano >= 0)


@given(st.integers(0, 9), all_funds)
def test_every_limit_is_shown_and_the_one_that_refuses_first(amount: int, of: Funds) -> None:
    found = refusal(amount, of)
    if found is not None:
        limits = shown(of, found)
        assert limits[0].source == found.source
        assert len(limits) == of[-1].is_limited + len(of) - 1
        assert not found.retry_after


def test_the_refusal_for_want_of_credits_says_why_and_what_helps() -> None:
    of = funds_of(reserved_nano=7 * CREDIT)
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 3 are left (balance 10, 7 reserved for batches)."
    )
    assert found.remedy == (
        "Make it smaller, lower max_tokens, add credits, or wait for other batches to end."
    )
    assert found.payment_required(shown(of, found), "acme_").metadata == {
        "error_type": "payment_required",
        "reason": "batch_exceeds_credits",
        "limit_source": "acme_credits",
        "remedy_hint": found.remedy,
        "limits": [
            {
                "limit_source": "acme_credits",
                "payer": False,
                "limit": 10,
                "used": 0,
                "held": 7,
                "remaining": 3,
                "resets_at": None,
            }
        ],
    }


def test_what_is_reserved_beyond_the_balance_leaves_nothing() -> None:
    found = refused(1, funds_of(reserved_nano=11 * CREDIT))
    assert "; 0 are left (balance 10, 11 reserved for batches)." in found.message


@pytest.mark.parametrize(
    ("resets_at", "wait"),
    [(None, ""), (MIDNIGHT, ", or wait for its reset at 2026-03-13T00:00:00Z")],
)
def test_the_refusal_of_a_keys_limit_says_why_and_what_helps(
    resets_at: datetime | None, wait: str
) -> None:
    reset = None if resets_at is None else Reset.DAILY
    of = funds_of(10 * CREDIT, limit_of(9, 2, 3, reset=reset, resets_at=resets_at))
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 4 are left of the key's limit of 9 (2 used, 3 reserved for "
        "batches)."
    )
    assert found.remedy == f"Make it smaller, lower max_tokens, or raise the key's limit{wait}."
    first = shown(of, found)[0]
    assert (first.source, first.used_nano, first.held_nano) == ("key_limit", 2 * CREDIT, 3 * CREDIT)
    assert first.resets_at == resets_at


def test_a_keys_limit_that_is_used_up_has_nothing_left() -> None:
    of = funds_of(CREDIT, limit_of(1, 2))
    assert "; 0 are left of the key's limit of 1" in refused(1, of).message


def test_the_refusal_of_the_payers_limit_says_whose_it_is() -> None:
    of = funds_of(100 * CREDIT, limit_of(100, 2, 3), limit_of(9, 2, 3, PAYER))
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 4 are left of the limit of the key that answers for this "
        "intern of 9 (2 used, 3 reserved for batches)."
    )
    assert found.remedy.endswith("or raise the limit of the key that answers for this intern.")
    assert [limit.source for limit in shown(of, found)] == [
        "payer_limit",
        "key_limit",
        "credits",
    ]
    error = found.payment_required(shown(of, found), "x_")
    assert error.metadata["limit_source"] == "x_key_limit"


def test_nothing_is_refused_by_a_negative_balance_in_the_words_for_free_models() -> None:
    found = refused(0, funds_of(-CREDIT))
    assert (found.reason, found.message) == (
        "negative_balance",
        "The account's balance is negative (-1); that refuses free models, too.",
    )
