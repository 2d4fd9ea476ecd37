"""What a request claims of budgets that other processes spend, too; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.admission.rules import no_free_requests, when_others_end
from tollhouse.accounting.admission.types import AdmissionRefusal, SpendClaim
from tollhouse.accounting.leases import ACCOUNT, FREE, KEY, BudgetId, window_of
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import Reset
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from tollhouse.accounting.admission.accounts import AccountState
    from tollhouse.accounting.admission.rules import AdmissionContext
    from tollhouse.accounting.types import Reservation


def claim_of(context: AdmissionContext, *, may_use_free: bool) -> SpendClaim | None:
    """Return what a request claims; None where it draws on nothing that is limited."""
    request = context.request
    amounts: dict[BudgetId, int] = {}
    with_own: list[BudgetId] = []
    if context.credits_nano:
        amounts[BudgetId(ACCOUNT, request.account_id)] = context.credits_nano
    for key, _, weight_nano in context.counted_keys:
        if key.limit.limit_nano is not None and weight_nano:
            budget = BudgetId(KEY, key.hash, window_of(key.limit.reset, context.today))
            amounts[budget] = weight_nano
            if key.limit.include_byok:
                with_own.append(budget)
    if may_use_free and context.counts_as_free and not request.free_later:
        amounts[_free_budget(context)] = 1
    return SpendClaim(request.generation_id, amounts, with_own=with_own) if amounts else None


def reserved_amounts(
    account: AccountState, reservation: Reservation, today: date
) -> Mapping[BudgetId, int]:
    """Return what a batch reserves of each budget."""
    amounts: dict[BudgetId, int] = {}
    if account.needs_credits:
        amounts[BudgetId(ACCOUNT, reservation.account_id)] = reservation.amount_nano
    for key_hash in reservation.key_hashes:
        limit = account.key(key_hash).limit
        if limit.limit_nano is not None:
            budget = BudgetId(KEY, key_hash, window_of(limit.reset, today))
            held = reservation.with_own_nano if limit.include_byok else reservation.amount_nano
            amounts[budget] = held
    return {budget: amount for budget, amount in amounts.items() if amount}


def given_limits(context: AdmissionContext, claim: SpendClaim) -> Mapping[BudgetId, int]:
    """Return the limits of a claim's budgets that the settings have, and not the database."""
    budget = _free_budget(context)
    if budget not in claim.amounts:
        return {}
    return {budget: free_requests_a_day(context.account.facts.credits, context.rules)}


def _free_budget(context: AdmissionContext) -> BudgetId:
    return BudgetId(FREE, context.request.account_id, window_of(Reset.DAILY, context.today))


def leaves_free(context: AdmissionContext, claim: SpendClaim) -> bool:
    """Have a request go on without free models, if others leave it none and it wants more."""
    request = context.request
    if request.only_free or {budget.scope for budget in claim.short} != {FREE}:
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
    for key, label, weight in context.counted_keys:
        if any(budget[:2] == (KEY, key.hash) for budget in claim.short):
            return AdmissionRefusal(
                "key_limit_held",
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
