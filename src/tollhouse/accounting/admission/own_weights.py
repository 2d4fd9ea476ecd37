"""What a request holds that own provider keys may serve: pure, apart from the state that it reads.

limit                                   holds the dearer of
the balance                             the gateway's price   the fee of what the provider takes
of a key, a workspace, ...              the gateway's price   the fee
of one that includes own keys           the gateway's price   what the provider takes, and the fee
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.accounting.pricing import most_with_own_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.admission.accounts import AccountState
    from tollhouse.accounting.admission.budget_states import BudgetState, LabelledBudget
    from tollhouse.accounting.admission.types import AdmissionRequest, LimitLabel
    from tollhouse.accounting.limits import AccountingRules

NO_FEE: Final = Fraction(0)


class HeldBudget(NamedTuple):
    """A budget that a request can use up, and what it holds of it."""

    budget: BudgetState
    label: LimitLabel
    weight_nano: int


class OwnWeights(NamedTuple):
    """What a request holds, in the words of `AdmissionContext`."""

    counted: tuple[HeldBudget, ...]
    takes_credits: bool
    weight_nano: int
    spendable_nano: int | None
    own_spendable_nano: int | None
    own_fee: Fraction
    is_free_own: bool


def weigh_with_own_keys(
    request: AdmissionRequest,
    account: AccountState,
    budgets: Sequence[LabelledBudget],
    rules: AccountingRules,
) -> OwnWeights:
    """Weigh a request that own keys may serve: what they would cost, and what the gateway's.

    Neither the balance nor a limit that does not include own keys cuts what these write, as long as
    it pays the fee.
    """
    today, is_free, fee = request.now.date(), False, rules.own_fee
    if fee and account.has_free_own(today, rules.free_own_a_month):
        is_free, fee = True, NO_FEE
    of_fee = partial(most_with_own_key, fee=fee)
    most, least = request.own_maximum_nano, request.own_minimum_nano
    shared_most, shared_least = request.maximum_nano, request.minimum_nano
    if request.own_key:
        most, least, shared_most, shared_least = shared_most, shared_least, 0, 0
    paid = (request.paid and not request.own_key) or (fee > 0 and most > 0)
    takes_credits = paid and account.needs_credits
    counted = [
        (budget, label)
        for budget, label in budgets
        if paid or (budget.limit.include_byok and (request.paid or most > 0))
    ]
    own, shared = most, shared_most
    if request.open_ended:
        lefts = [
            (budget.limit.include_byok, budget.left_nano(budget.limit.limit_nano, today))
            for budget, _ in counted
            if budget.limit.limit_nano is not None
        ]
        if takes_credits:
            lefts.append((False, account.available_nano))
        for includes, left in lefts:
            shared = min(shared, left)
            if part := fee + includes:
                own = min(own, left * part.denominator // part.numerator)
        own, shared = max(least, own), max(shared_least, shared)
    weight, including = max(shared, of_fee(own)), max(shared, own + of_fee(own))
    return OwnWeights(
        counted=tuple(
            [
                HeldBudget(budget, label, including if budget.limit.include_byok else weight)
                for budget, label in counted
            ]
        ),
        takes_credits=takes_credits,
        weight_nano=weight,
        spendable_nano=shared if shared < shared_most else None,
        own_spendable_nano=own if own < most else None,
        own_fee=fee,
        is_free_own=is_free,
    )
