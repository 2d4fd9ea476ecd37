"""What a request holds of each budget that it draws on: pure, apart from the state that it reads.

It holds the most that it may cost. What names no limit of its output holds at most what is left,
and is asked with a limit of its output; others' holds do not lower that: no answer is cut short by
what is free again in a moment. Of what own provider keys may serve, it holds the dearer of

    budget                              the gateway's keys    own keys
    the balance                         the price             the fee of what the provider takes
    of a key, a workspace, ...          the price             the fee
    of one that includes own keys       the price             what the provider takes, and the fee
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tollhouse.accounting.admission.accounts import AccountState
from tollhouse.accounting.admission.types import AdmissionRequest
from tollhouse.accounting.leases import FREE, IN_FLIGHT, KEY, window_of
from tollhouse.accounting.limits import AccountingRules, Budget, BudgetId
from tollhouse.accounting.pricing import most_with_own_key
from tollhouse.accounting.rights import Claim
from tollhouse.accounting.types import BudgetScope
from tollhouse.identity.types import AccountType

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.accounting.types import GenerationRecord

Held = tuple["Budget", int]
"""A budget, and what is held of it."""
_NO_FEE: Final = Fraction(0)


class AdmissionContext(Struct, eq=False):
    """A request, what decides about it, and what it will hold. Not frozen: each request has one."""

    account: AccountState
    request: AdmissionRequest
    rules: AccountingRules
    today: date
    """The UTC day that it counts to."""
    now: float
    """Seconds of a clock that never jumps."""
    budgets: Sequence[Budget] = ()
    """All that limit it, in the order in which they are enforced."""
    counted: Sequence[Held] = ()
    """Those of them that it can use up."""
    spendable_nano: int | None = None
    """What it may cost, where that is less than the most that it could."""
    own_spendable_nano: int | None = None
    """The same of what a provider may take from a customer with an own key."""
    own_fee: Fraction = _NO_FEE
    """The part of that which it costs then."""
    is_free_own: bool = False
    """Whether it costs no fee with own keys, since the allowance has room for it."""
    claim: SpendClaim | None = None
    """What it holds of budgets that other processes spend, too."""

    def __post_init__(self) -> None:
        request = self.request
        self.budgets = budgets = self.account.budgets(request)
        most = least_left = request.maximum_nano
        for budget in budgets:
            if budget.reset is not None:
                budget.on(self.today)
            least_left = min(least_left, budget.left_nano)
        if request.own_key or request.either_way:
            self._weigh_own()
        elif request.paid:
            weight = max(request.minimum_nano, least_left) if request.open_ended else most
            self.spendable_nano = weight if weight < most else None
            self.counted = [(budget, weight) for budget in budgets]

    @property
    def key_hash(self) -> str:
        """The key that it was asked with."""
        return next(iter(self.request.key_hashes), "")

    @property
    def counts_as_free(self) -> bool:
        """Whether limits of free models count it: no exempt account's, and none with own keys."""
        request = self.request
        return request.free and not request.own_key and not self.account.facts.free_limits_exempt

    def in_flight_nano(self) -> int | None:
        """Return what all requests in flight may hold: a part of the balance, up to the ceiling.

        What batches have reserved is no part of that balance. None where the budget does not hold
        for a request.

        Source: its second and fifth rule: prepaid accounts below a balance, and (if that is
        switched on) those that never used anything; not free models, own provider keys, nor what
        has no token cost.
        """
        account, rules = self.account, self.rules
        if not self.request.estimate_nano or account.facts.type is not AccountType.PREPAID:
            return None
        available, is_new = account.balance.left_nano, not account.balance.spend_nano
        if available >= rules.threshold_nano and not (rules.new_accounts and is_new):
            return None
        part = available * rules.fraction.numerator // rules.fraction.denominator
        return max(0, min(part, rules.ceiling_nano))

    def held_of(self, owner_id: str) -> int:
        """Return what it holds of the budget of a key, or of the account."""
        return next((nano for each, nano in self.counted if each.owner_id == owner_id), 0)

    def _weigh_own(self) -> None:
        """Weigh what own keys would take, and what the gateway's would cost.

        Neither the balance nor a limit that does not include own keys cuts what these write, as
        long as it pays the fee.
        """
        request, rules = self.request, self.rules
        self.own_fee = rules.own_fee
        if self.own_fee and self.account.has_free_own(self.today, rules.free_own_a_month):
            self.is_free_own, self.own_fee = True, _NO_FEE
        most, least = request.own_maximum_nano, request.own_minimum_nano
        shared_most, shared_least = request.maximum_nano, request.minimum_nano
        if request.own_key:
            request.estimate_nano = 0  # nothing of the in-flight budget, which is others'
            most, least, shared_most, shared_least = shared_most, shared_least, 0, 0
        fee, own, shared = self.own_fee, most, shared_most
        paid = (request.paid and not request.own_key) or (most > 0 and fee > 0)
        counted = [
            budget
            for budget in self.budgets
            if paid or (budget.include_byok and (request.paid or most > 0))
        ]
        if request.open_ended:
            for budget in counted:
                left = budget.left_nano
                shared = min(shared, left)
                if most and (part := fee + budget.include_byok):
                    own = min(own, left * part.denominator // part.numerator)
            own, shared = max(least, own), max(shared_least, shared)
        fee_nano = most_with_own_key(own, fee)
        weight, including = max(shared, fee_nano), max(shared, own + fee_nano)
        self.counted = [
            (budget, including if budget.include_byok else weight) for budget in counted
        ]
        self.spendable_nano = shared if shared < shared_most else None
        self.own_spendable_nano = own if own < most else None


# What other processes spend, too


@dataclass(slots=True, eq=False)
class SpendClaim(Claim):
    """What a request may cost of each budget that it draws on."""

    with_own: Collection[BudgetId] = ()
    """Those that count what providers take from customers with own keys, too."""

    def costs(self, record: GenerationRecord) -> Mapping[BudgetId, int]:
        """Return what a charge costs of each of them."""
        return {budget: self._cost(budget, record) for budget in self.amounts}

    def _cost(self, budget: BudgetId, record: GenerationRecord) -> int:
        if budget.scope == IN_FLIGHT:
            return 0
        if budget.scope == FREE:
            return int(record.free_limited)
        own = record.spend.byok_usage_nano if budget in self.with_own else 0
        return record.cost_nano + own

    def covers(self, wanted: SpendClaim) -> bool:
        """Tell whether it suffices for what is wanted."""
        return all(self.amounts.get(each, 0) >= nano for each, nano in wanted.amounts.items())


def budget_id(budget: Budget, day: date) -> BudgetId:
    """Return what the database calls a budget in the window of a UTC day."""
    if budget.named is None or budget.named[0] != day:
        scope = KEY if budget.scope is BudgetScope.KEY_LIMIT else budget.scope.value
        budget.named = day, BudgetId(scope, budget.owner_id, window_of(budget.reset, day))
    return budget.named[1]


def in_flight_id(context: AdmissionContext) -> BudgetId:
    """Return what the database calls what requests of an account have under way."""
    return BudgetId(IN_FLIGHT, context.request.account_id)


def claim_of(context: AdmissionContext, *, may_use_free: bool) -> SpendClaim | None:
    """Return what a request claims; None where it draws on nothing that is limited."""
    amounts: dict[BudgetId, int] = {}
    with_own: list[BudgetId] = []
    for budget, nano in context.counted:
        if nano and budget.is_limited:
            name = budget_id(budget, context.today)
            amounts[name] = nano
            if budget.include_byok:
                with_own.append(name)
    if may_use_free and context.counts_as_free and not context.request.free_later:
        amounts[budget_id(context.account.free, context.today)] = 1
    if context.in_flight_nano() is not None:
        amounts[in_flight_id(context)] = context.request.estimate_nano
    if not amounts:
        return None
    return SpendClaim(context.request.generation_id, amounts, with_own=with_own)


def reserved_of(budgets: Sequence[Budget], amount_nano: int, with_own_nano: int) -> Sequence[Held]:
    """Return what a batch reserves of each of some budgets that is limited."""
    held = [
        (each, with_own_nano if each.include_byok else amount_nano)
        for each in budgets
        if each.is_limited
    ]
    return [(each, nano) for each, nano in held if nano]


def given_limits(context: AdmissionContext, claim: SpendClaim) -> Mapping[BudgetId, int]:
    """Return the limits of a claim's budgets that the settings have, and not the database."""
    free, in_flight_nano = context.account.free, context.in_flight_nano()
    given = {budget_id(free, context.today): free.limit_nano}
    if in_flight_nano is not None:
        given[in_flight_id(context)] = in_flight_nano
    return {name: limit for name, limit in given.items() if name in claim.amounts}
