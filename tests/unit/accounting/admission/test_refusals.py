"""What each kind of limit says where it refuses a request, and whether waiting helps.

That it refuses then and not sooner, the state machine compares with a model.
"""

from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from tests.support.seams.accounting import Credits, KeyFacts, KeyLimit, Reset, Spend
from tests.support.seams.identity import AccountType
from tests.unit.accounting.admission.admission_fixture import CREDIT, KEY, AdmissionFixture, limits
from tollhouse.kernel.errors import PaymentRequired

RICH = 1_000 * CREDIT
ADA = "a" * 64
"""The key of an intern; `KEY` answers for it."""


def key(limit: int, used: int = 0, reserved: int = 0, reset: Reset | None = None) -> KeyFacts:
    """Return a key's limit, what it used of it two days ago, and what its batches reserved."""
    days = {date(2026, 3, 10): Spend(used)}
    return KeyFacts(KeyLimit(limit, reset), Spend(used), days, reserved_nano=reserved)


@dataclass(frozen=True)
class Given:
    """An account, the requests that run, and one that is refused."""

    asked: int
    own: KeyFacts | None = None
    payer: KeyFacts | None = None
    credits_: Credits | None = None
    reserved: int = 0
    running: tuple[int, ...] = ()
    more: tuple[tuple[str, Any], ...] = ()
    """Other fields of the requests."""
    type_: AccountType = AccountType.PREPAID

    async def refusal(self) -> PaymentRequired:
        admission = AdmissionFixture(
            credits=self.credits_ or Credits(RICH), reserved_nano=self.reserved, type=self.type_
        )
        own = KEY if self.payer is None else ADA
        admission.loader.keys[own] = self.own or KeyFacts()
        if self.payer is not None:
            admission.loader.keys[KEY] = self.payer
        keys = {"key_hashes": (own, KEY) if own == ADA else (KEY,)}
        for estimate in self.running:
            await admission.admit(estimate, **keys, **dict(self.more))
        with pytest.raises(PaymentRequired) as caught:
            await admission.admit(self.asked, **keys, **dict(self.more))
        assert caught.value.metadata["error_type"] == "payment_required"
        return caught.value


def prepaid(balance: int, asked: int, reserved: int = 0, *running: int, **more: Any) -> Given:
    return Given(
        asked,
        credits_=Credits(purchased_nano=balance),
        reserved=reserved,
        running=running,
        more=tuple(more.items()),
    )


PAYERS = "the limit of the key that answers for this intern"
WITH = "; batches have reserved {} credits"
EXHAUSTED, HELD, TOO_SMALL = "key_limit_exhausted", "key_limit_held", "weight_exceeds_key_limit"
BUDGET_FULL, BUDGET_TOO_SMALL = "in_flight_budget_exhausted", "weight_exceeds_budget"
NONE_LEFT, TOO_FEW = "insufficient_credits", "weight_exceeds_credits"
HELD_OF = "Requests under way hold {} credits of {}; {} are left"
MAY_COST = "The request may cost {} credits; {} are left of {}"
IN_BUDGET = "Requests under way or just ended hold {} of an in-flight budget of {} credits"
NO_CREDITS = "The account has no credits left (balance {})"
AMONG_OTHERS = (
    "Requests under way may cost {} credits of the account's balance, this one {}; {} are left"
)
OWN = "the key's limit"
USED_UP = "The key's limit of {} credits is used up ({} used)"
REFUSALS = [
    # A key's own limit
    (Given(1, key(CREDIT, CREDIT)), EXHAUSTED, USED_UP.format(1, 1)),
    (Given(1, key(CREDIT, 3 * CREDIT)), EXHAUSTED, USED_UP.format(1, 3)),
    (Given(0, key(0)), EXHAUSTED, USED_UP.format(0, 0)),
    (
        Given(3 * CREDIT, key(10 * CREDIT), running=(3 * CREDIT,) * 3),
        HELD,
        HELD_OF.format(9, OWN, 1),
    ),
    (Given(3 * CREDIT, key(10 * CREDIT, 8 * CREDIT)), TOO_SMALL, MAY_COST.format(3, 2, OWN)),
    (
        Given(1, key(5 * CREDIT, 2 * CREDIT, 3 * CREDIT)),
        EXHAUSTED,
        USED_UP.format(5, 2) + WITH.format(3),
    ),
    (
        Given(3 * CREDIT, key(5 * CREDIT, 0, 3 * CREDIT)),
        TOO_SMALL,
        MAY_COST.format(3, 2, OWN) + WITH.format(3),
    ),
    (
        Given(2 * CREDIT, key(5 * CREDIT, 0, 3 * CREDIT), running=(CREDIT,)),
        HELD,
        HELD_OF.format(1, OWN, 1) + WITH.format(3),
    ),
    # That of the key that answers for it, which holds beside its own
    (
        Given(1, payer=key(CREDIT, CREDIT)),
        EXHAUSTED,
        f"T{PAYERS[1:]} of 1 credits is used up (1 used)",
    ),
    (
        Given(5 * CREDIT, payer=key(10 * CREDIT), running=(5 * CREDIT,) * 2),
        HELD,
        HELD_OF.format(10, PAYERS, 0),
    ),
    (
        Given(5 * CREDIT, key(10 * CREDIT), key(3 * CREDIT)),
        TOO_SMALL,
        MAY_COST.format(5, 3, PAYERS),
    ),
    (
        Given(5 * CREDIT, payer=key(10 * CREDIT, 0, 6 * CREDIT)),
        TOO_SMALL,
        MAY_COST.format(5, 4, PAYERS) + WITH.format(6),
    ),
    (Given(5 * CREDIT, key(3 * CREDIT), key(10 * CREDIT)), TOO_SMALL, MAY_COST.format(5, 3, OWN)),
    (Given(1, key(0), key(0)), EXHAUSTED, USED_UP.format(0, 0)),
    # The in-flight budget
    (
        prepaid(10 * CREDIT, CREDIT, 0, *(CREDIT,) * 5),
        BUDGET_FULL,
        IN_BUDGET.format(5, 5) + "; this one needs 1",
    ),
    (
        prepaid(10 * CREDIT, CREDIT, 6 * CREDIT, 2 * CREDIT),
        BUDGET_FULL,
        IN_BUDGET.format(2, 2) + "; this one needs 1" + WITH.format(6),
    ),
    (
        prepaid(3 * CREDIT, 2 * CREDIT),
        BUDGET_TOO_SMALL,
        "The request would hold 2 credits and the whole in-flight budget is 1.5",
    ),
    (
        prepaid(3 * CREDIT, 2 * CREDIT, open_ended=True),
        BUDGET_TOO_SMALL,
        (
            "The request would hold 2 credits, since it names no max_tokens, and the whole "
            "in-flight budget is 1.5"
        ),
    ),
    (
        prepaid(10 * CREDIT, 3 * CREDIT, 6 * CREDIT),
        BUDGET_TOO_SMALL,
        "The request would hold 3 credits and the whole in-flight budget is 2" + WITH.format(6),
    ),
    # The balance
    (prepaid(0, 0, paid=True), NONE_LEFT, NO_CREDITS.format(0)),
    (prepaid(10 * CREDIT, 1, 10 * CREDIT), NONE_LEFT, NO_CREDITS.format(10) + WITH.format(10)),
    (prepaid(10 * CREDIT, 1, 11 * CREDIT), NONE_LEFT, NO_CREDITS.format(10) + WITH.format(11)),
    (Given(1, credits_=Credits(), type_=AccountType.SUBSCRIPTION), NONE_LEFT, NO_CREDITS.format(0)),
    (
        prepaid(4 * CREDIT, 1, maximum_nano=100 * CREDIT),
        TOO_FEW,
        MAY_COST.format(100, 4, "the account's balance"),
    ),
    (
        prepaid(CREDIT, 1, maximum_nano=9, minimum_nano=2 * CREDIT, open_ended=True),
        TOO_FEW,
        "The request's prompt alone may cost 2 credits; 1 are left of the account's balance",
    ),
    (
        prepaid(CREDIT, 1, maximum_nano=9, fee_nano=1, minimum_nano=2 * CREDIT, open_ended=True),
        TOO_FEW,
        (
            "The request's fee and prompt alone may cost 2 credits; 1 are left of the account's "
            "balance"
        ),
    ),
    (
        prepaid(CREDIT, 1, maximum_nano=3 * CREDIT, fee_nano=2 * CREDIT),
        TOO_FEW,
        "The request's fee alone is 2 credits; 1 are left of the account's balance",
    ),
    (
        prepaid(4 * CREDIT, 0, 0, *(0,) * 4, maximum_nano=CREDIT),
        "credits_held",
        AMONG_OTHERS.format(4, 1, 4),
    ),
    (
        prepaid(RICH, 0, 0, *(0,) * 4, maximum_nano=RICH // 4),
        "credits_held",
        AMONG_OTHERS.format(1000, 250, 1000),
    ),
    (
        Given(0, credits_=Credits(CREDIT, used_nano=2 * CREDIT), more=(("free", True),)),
        "negative_balance",
        "The account's balance is negative (-1); that refuses free models, too",
    ),
]
PASSES = {HELD, BUDGET_FULL, "credits_held"}
"""What waiting for other requests may end."""


@pytest.mark.parametrize(("given", "reason", "message"), REFUSALS)
async def test_a_refusal_says_which_limit_it_was_and_whether_it_passes(
    given: Given, reason: str, message: str
) -> None:
    error = await given.refusal()
    assert (error.metadata["reason"], error.message) == (reason, f"{message}.")
    assert error.retry_after == (5 if reason in PASSES else None)
    source = "key_limit" if "key" in reason else "credits"
    source = "in_flight_budget" if reason == BUDGET_FULL else source
    assert error.metadata["limit_source"] == f"service_{source}"


RAISE = "Raise the key's limit"


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (Given(1, key(CREDIT, CREDIT)), RAISE),
        (
            Given(1, key(10, 10, reset=Reset.WEEKLY)),
            f"{RAISE}, or wait for its reset at 2026-03-16T00:00:00Z",
        ),
        (
            Given(1, key(10, 10, reset=Reset.MONTHLY)),
            f"{RAISE}, or wait for its reset at 2026-04-01T00:00:00Z",
        ),
        (Given(1, key(5, 2, 3)), f"{RAISE}, or wait for batches to end"),
        (
            Given(1, key(5, 0, 5, Reset.DAILY)),
            f"{RAISE}, or wait for its reset at 2026-03-13T00:00:00Z, or wait for batches to end",
        ),
        (Given(5, key(10), key(3)), f"Lower max_tokens or the prompt's size, or raise {PAYERS}"),
        (
            prepaid(3 * CREDIT, 2 * CREDIT),
            (
                "Set max_tokens or lower it, shorten the prompt, or add credits; the same request "
                "again does not help"
            ),
        ),
        (prepaid(1, 1, maximum_nano=2, fee_nano=2), "Add credits"),
        (Given(1, key(1), more=(("maximum_nano", 2), ("fee_nano", 2))), "Raise the key's limit"),
        (prepaid(10, 1, 10), "Add credits, or wait for batches to end"),
    ],
)
async def test_a_refusal_says_what_helps(given: Given, remedy: str) -> None:
    assert (await given.refusal()).metadata["remedy_hint"] == f"{remedy}."


async def test_the_limits_are_listed_with_the_binding_one_first_and_say_whose_they_are() -> None:
    """What batches reserved is held of the credits and of the key's limit, not of the budget."""
    own, payer = key(10 * CREDIT, CREDIT, 2 * CREDIT, Reset.DAILY), key(3 * CREDIT)
    shown = limits(await Given(5 * CREDIT, own, payer).refusal())
    assert [(each["limit_source"], each["payer"]) for each in shown] == [
        ("service_key_limit", True),
        ("service_key_limit", False),
        ("service_credits", False),
    ]
    assert shown[1] == {
        "limit_source": "service_key_limit",
        "payer": False,
        "limit": 10,
        "used": 0,
        "held": 2,
        "remaining": 8,
        "resets_at": "2026-03-13T00:00:00Z",
    }
    shown = limits(await prepaid(10 * CREDIT, 2 * CREDIT, 6 * CREDIT, CREDIT).refusal())
    assert [(each["limit"], each["held"], each["remaining"]) for each in shown] == [
        (2, 1, 1),
        (10, 7, 3),
    ]
    held = Given(2 * CREDIT, key(5 * CREDIT, 0, 3 * CREDIT), running=(CREDIT,))
    shown = limits(await held.refusal())
    assert (shown[0]["limit"], shown[0]["held"], shown[0]["remaining"]) == (5, 4, 1)
