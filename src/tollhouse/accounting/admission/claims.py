"""What a request claims of budgets that other processes spend, too; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.admission.rules import (
    drawn_budgets,
    no_free_requests,
    when_others_end,
)
from tollhouse.accounting.admission.types import AdmissionRefusal, SpendClaim
from tollhouse.accounting.leases import ACCOUNT, FREE, BudgetId, window_of
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import Reset
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.admission.accounts import AccountState
    from tollhouse.accounting.admission.rules import AdmissionContext
    from tollhouse.accounting.admission.types import AdmissionRequest
    from tollhouse.accounting.types import Reservation


def claim_of(context: AdmissionContext, *, may_use_free: bool) -> SpendClaim | None:
    """Return what a request claims; None where it draws on nothing that is limited."""
    request = context.request
    amounts: dict[BudgetId, int] = {}
    with_own: list[BudgetId] = []
    if context.credits_nano:
        amounts[BudgetId(ACCOUNT, request.account_id)] = context.credits_nano
    for budget, weight_nano, includes_own in drawn_budgets(context):
        amounts[budget] = weight_nano
        if includes_own:
            with_own.append(budget)
    if may_use_free and context.counts_as_free and not request.free_later:
        amounts[_free_budget(context)] = 1
    return SpendClaim(request.generation_id, amounts, with_own=with_own) if amounts else None


def reserved_amounts(
    account: AccountState, reservation: Reservation, request: AdmissionRequest
) -> Mapping[BudgetId, int]:
    """Return what a batch reserves of each budget that a request of it would draw on."""
    amounts: dict[BudgetId, int] = {}
    if account.needs_credits:
        amounts[BudgetId(ACCOUNT, reservation.account_id)] = reservation.amount_nano
    for budget, _ in account.budgets(request):
        limit = budget.limit
        if limit.limit_nano is not None:
            held = reservation.with_own_nano if limit.include_byok else reservation.amount_nano
            amounts[budget.budget_id(request.now.date())] = held
    return {budget: amount for budget, amount in amounts.items() if amount}


def given_limits(context: AdmissionContext, claim: SpendClaim) -> Mapping[BudgetId, int]:
    """Return the limits of a claim's budgets that the settings have, and not the database."""
    budget = _free_budget(context)
    if budget not in claim.amounts:
        return {}
    return {budget: free_requests_a_day(context.account.facts.credits, context.rules)}


def _free_budget(context: AdmissionContext) -> BudgetId:
    return BudgetId(FREE, context.request.account_id, window_of(Reset.DAILY, context.today))


def covers(claim: SpendClaim | None, wanted: SpendClaim | None) -> bool:
    """Tell whether a claim suffices for what is wanted."""
    if wanted is None:
        return True
    return claim is not None and all(
        claim.amounts.get(budget, 0) >= amount for budget, amount in wanted.amounts.items()
    )


def is_same(claim: SpendClaim, wanted: SpendClaim | None) -> bool:
    """Tell whether as much is wanted as was claimed."""
    return wanted is not None and claim.amounts == wanted.amounts


def leaves_free(context: AdmissionContext, claim: SpendClaim) -> bool:
    """Have a request go on without free models, if others leave it none and it wants more."""
    request = context.request
    of_free = _free_budget(context)
    if request.only_free or of_free not in claim.amounts:
        return False
    if claim.short and of_free not in claim.short:
        return False
    request.others_use_free = True
    return True


def held_elsewhere(context: AdmissionContext, claim: SpendClaim) -> AdmissionRefusal:
    """Return the refusal of a request to which others leave too little, in other processes.

    Raises:
        RateLimited: It is one to a free model, and they leave none of the day's.
    """
    if {budget.scope for budget in claim.short} == {FREE}:
        raise no_free_requests(context)
    for budget, label, weight in context.counted:
        if budget.budget_id(context.today) in claim.short:
            return AdmissionRefusal(
                f"{label.noun}_held",
                label.source,
                f"Requests under way hold what is left of {label.limit}; this one may cost "
                f"{format_credits(weight)} credits.",
                f"Wait for them and send the request again, or raise {label.limit}.",
                retry_after=when_others_end(context),
            )
    return AdmissionRefusal(
        "credits_held",
        "credits",
        "Requests under way hold what is left of the account's balance; this one may cost "
        f"{format_credits(context.weight_nano)} credits.",
        "Wait for them and send the request again, lower max_tokens, or add credits.",
        retry_after=when_others_end(context),
    )
