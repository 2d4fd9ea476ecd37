"""Whether credits can be reserved for a batch."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.accounting.admission.refusals import payment_required
from tollhouse.accounting.admission.reservation_rules import (
    AvailableFunds,
    KeyFunds,
    current_limits,
    refusal,
)
from tollhouse.accounting.admission.types import AdmissionRefusal
from tollhouse.accounting.types import Budget, BudgetScope, Credits, Reset
from tollhouse.kernel.money import NANO_PER_CREDIT as CREDIT

MIDNIGHT = datetime(2026, 3, 13, tzinfo=UTC)
amounts = st.integers(0, 9)
key_limits = st.none() | st.builds(Budget, st.just(BudgetScope.KEY_LIMIT), amounts, amounts)
means = st.builds(
    AvailableFunds,
    st.builds(Credits, purchased_nano=amounts, used_nano=amounts),
    st.booleans(),
    amounts,
    st.builds(KeyFunds, key_limits, amounts),
    st.none() | st.builds(KeyFunds, key_limits, amounts),
)


def means_of(balance: int = 10 * CREDIT, **fields: Any) -> AvailableFunds:
    return AvailableFunds(credits=Credits(purchased_nano=balance), needs_credits=True, **fields)


def limited_keys(of: AvailableFunds) -> list[KeyFunds]:
    """Return what is left of those keys that have a limit."""
    keys = (of.key, of.payer)
    return [key for key in keys if key is not None and key.limit is not None]


def refused(amount_nano: int, of: AvailableFunds) -> AdmissionRefusal:
    found = refusal(amount_nano, of)
    assert found is not None
    return found


@given(st.integers(1, 9), means)
def test_an_amount_fits_where_it_is_left_everywhere(amount: int, of: AvailableFunds) -> None:
    left = [of.credits.balance_nano - of.reserved_nano] if of.needs_credits else []
    left += [
        key.limit.limit_nano - key.limit.spend_nano - key.reserved_nano for key in limited_keys(of)
    ]
    assert (refusal(amount, of) is None) == all(amount <= each for each in left)


@given(means)
def test_nothing_fits_unless_the_balance_is_negative(of: AvailableFunds) -> None:
    assert (refusal(0, of) is None) == (of.credits.balance_nano >= 0 or not of.needs_credits)


@given(st.integers(0, 9), means)
def test_every_limit_is_shown_and_the_one_that_refuses_first(
    amount: int, of: AvailableFunds
) -> None:
    found = refusal(amount, of)
    if found is not None:
        shown = current_limits(of, found)
        assert shown[0].source == found.source
        assert len(shown) == of.needs_credits + len(limited_keys(of))
        assert not found.retry_after


def test_the_refusal_for_want_of_credits_says_why_and_what_helps() -> None:
    of = means_of(reserved_nano=7 * CREDIT)
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 3 are left (balance 10, 7 reserved for batches)."
    )
    assert found.remedy == (
        "Make it smaller, lower max_tokens, add credits, or wait for other batches to end."
    )
    assert payment_required(found, current_limits(of, found), "acme_").metadata == {
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
    found = refused(1, means_of(reserved_nano=11 * CREDIT))
    assert "; 0 are left (balance 10, 11 reserved for batches)." in found.message


@pytest.mark.parametrize(
    ("resets_at", "wait"),
    [(None, ""), (MIDNIGHT, ", or wait for its reset at 2026-03-13T00:00:00Z")],
)
def test_the_refusal_of_a_keys_limit_says_why_and_what_helps(
    resets_at: datetime | None, wait: str
) -> None:
    reset = None if resets_at is None else Reset.DAILY
    limit = Budget(BudgetScope.KEY_LIMIT, 9 * CREDIT, 2 * CREDIT, reset, resets_at)
    of = means_of(key=KeyFunds(limit, 3 * CREDIT))
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 4 are left of the key's limit of 9 (2 used, 3 reserved for "
        "batches)."
    )
    assert found.remedy == f"Make it smaller, lower max_tokens, or raise the key's limit{wait}."
    first = current_limits(of, found)[0]
    assert (first.source, first.used_nano, first.held_nano) == ("key_limit", 2 * CREDIT, 3 * CREDIT)
    assert first.resets_at == resets_at


def test_a_keys_limit_that_is_used_up_has_nothing_left() -> None:
    of = means_of(key=KeyFunds(Budget(BudgetScope.KEY_LIMIT, CREDIT, 2 * CREDIT)))
    assert "; 0 are left of the key's limit of 1" in refused(1, of).message


def test_the_refusal_of_the_payers_limit_says_whose_it_is() -> None:
    own, payers = (Budget(BudgetScope.KEY_LIMIT, limit * CREDIT, 2 * CREDIT) for limit in (100, 9))
    of = means_of(100 * CREDIT, key=KeyFunds(own), payer=KeyFunds(payers, 3 * CREDIT))
    found = refused(5 * CREDIT, of)
    assert found.message == (
        "The batch may cost 5 credits; 4 are left of the limit of the key that answers for this "
        "intern of 9 (2 used, 3 reserved for batches)."
    )
    assert found.remedy.endswith("or raise the limit of the key that answers for this intern.")
    assert [limit.source for limit in current_limits(of, found)] == [
        "payer_limit",
        "key_limit",
        "credits",
    ]
    assert (
        payment_required(found, current_limits(of, found), "x_").metadata["limit_source"]
        == "x_key_limit"
    )


def test_nothing_is_refused_by_a_negative_balance_in_the_words_for_free_models() -> None:
    found = refused(0, means_of(-CREDIT))
    assert (found.reason, found.message) == (
        "negative_balance",
        "The account's balance is negative (-1); that refuses free models, too.",
    )
