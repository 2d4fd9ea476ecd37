"""Whether a request may begin, or a batch be paid for: pure, apart from the state that it reads.

    requests          of its model in a minute; of free models in a minute and in a UTC day
    key limits        what the key used, holds, and would hold; then the same of its payer
    balance           the same of the account's credits
    in-flight budget  a part of the balance, for all requests at once

Of key limits and of the balance a request holds the most that it may cost. One that names no limit
of its output must be able to pay for its prompt; where what is left does not pay for all that its
model could write, it holds what is left, and is asked with a limit of its output. What batches have
reserved is taken from both before; their requests are no part of the in-flight budget. A limit that
only other requests' holds exceed can be waited for; any other refuses at once.

A batch reserves from what is left of its keys' limits and of the balance. Requests under way do not
count: they are over long before a batch is.

Source: the order of the public gateway's checks, the six rules of its in-flight budget, its table
of 429 errors, and its free-model limits: 20 a minute; 50 a UTC day, 1,000 from ten purchased
credits on, where one credit less is enough; for an account, however many keys it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.own_weights import NO_FEE, HeldKey, weigh_with_own_keys
from tollhouse.accounting.admission.types import (
    FREE_PER_DAY,
    LABELS,
    AccountFacts,
    AdmissionRefusal,
    AdmissionRequest,
    CreditLimit,
    LimitLabel,
    Rate,
    RequestLimit,
    Source,
    SpendClaim,
)
from tollhouse.accounting.limits import AccountingRules, resets_at
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import KeyStatus, Reset
from tollhouse.identity.types import AccountType
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import RateLimited, RateWindow
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from fractions import Fraction

    from tollhouse.accounting.admission.accounts import AccountState, KeyState

_OR_BATCHES = ", or wait for batches to end"


@dataclass(slots=True)
class AdmissionContext:
    """A request, what decides about it, and what it will hold. Not frozen: each request has one."""

    account: AccountState
    request: AdmissionRequest
    rules: AccountingRules
    now: float
    """Seconds of a clock that never jumps."""
    keys: tuple[tuple[KeyState, LimitLabel], ...] = field(init=False)
    """All whose limits hold."""
    counted_keys: tuple[HeldKey, ...] = field(init=False)
    """Those of them whose limits it can use up."""
    takes_credits: bool = field(init=False)
    weight_nano: int = field(init=False)
    """What it holds of the balance, and of the limits that it counts towards, unless these include
    own keys."""
    spendable_nano: int | None = field(init=False, default=None)
    """What it may cost, where that is less than the most that it could."""
    own_spendable_nano: int | None = field(init=False, default=None)
    """The same of what a provider may take from a customer with an own key."""
    own_fee: Fraction = field(init=False, default=NO_FEE)
    """The part of that which it costs then."""
    is_free_own: bool = False
    """Whether it costs no fee with own keys, since the allowance has room for it."""
    holds_free: bool = False
    claim: SpendClaim | None = None
    """What it holds of budgets that other processes spend, too."""

    def __post_init__(self) -> None:
        request, account = self.request, self.account
        self.keys = tuple(zip(map(account.key, request.key_hashes), LABELS, strict=False))
        if request.own_key or request.either_way:
            if request.own_key:
                request.estimate_nano = 0  # nothing of the in-flight budget, which is others'
            found = weigh_with_own_keys(request, account, self.keys, self.rules)
            for name, value in found._asdict().items():
                setattr(self, name, value)
            return
        self.takes_credits = request.paid and account.needs_credits
        counted = self.keys if request.paid else ()
        weight = request.maximum_nano
        if request.open_ended:
            weight = _open_weight_nano(self, [key for key, _ in counted])
        self.counted_keys = tuple([HeldKey(key, label, weight) for key, label in counted])
        self.weight_nano = weight

    @property
    def today(self) -> date:
        """The UTC day that it counts to."""
        return self.request.now.date()

    @property
    def credits_nano(self) -> int:
        """What it holds of the balance."""
        return self.weight_nano if self.takes_credits else 0

    @property
    def counts_as_free(self) -> bool:
        """Whether limits of free models count it: no exempt account's, and none with own keys."""
        request = self.request
        return request.free and not request.own_key and not self.account.facts.free_limits_exempt


def _open_weight_nano(context: AdmissionContext, counted: Sequence[KeyState]) -> int:
    """Return the weight of a request without a limit of its output: at most what is left.

    Others' holds do not lower it: no answer is cut short by what is free again in a moment.
    """
    request, left = context.request, context.request.maximum_nano
    for key in counted:
        if (limit := key.limit.limit_nano) is not None:
            left = min(left, key.left_nano(limit, context.today))
    if context.takes_credits:
        left = min(left, context.account.available_nano)
    weight = max(request.minimum_nano, left)
    context.spendable_nano = weight if weight < request.maximum_nano else None
    return weight


# Limits of requests


def check_request_limits(context: AdmissionContext, at: datetime) -> bool:
    """Tell whether a request may use free models; one that wants paid ones too goes on without.

    Raises:
        RateLimited: It may not, and wants nothing else; or its model's own limit is reached.
    """
    request, refused = context.request, _rate_limited(context, at)
    if refused is None:
        return request.free
    if request.free and not request.only_free:
        return False
    raise refused


def current_request_limits(context: AdmissionContext, at: datetime) -> Sequence[RequestLimit]:
    """Return every limit of requests that holds for a request, at a time of day."""
    account, request, found = context.account, context.request, list[RequestLimit]()
    if request.free and not context.counts_as_free:
        return found
    if (rate := request.rate) is not None:
        used, leaves = account.minute(rate).current(context.now)
        free_again = None if leaves is None else at + timedelta(seconds=leaves)
        found.append(RequestLimit(rate.bucket, rate.per_minute, used, 0, free_again))
    if request.free:
        limit, held = free_requests_a_day(account.facts.credits, context.rules), account.free_held
        used, midnight = account.free_used(context.today) - held, _midnight(context)
        found.append(RequestLimit(FREE_PER_DAY, limit, used, held, midnight))
    return found


def counted_rate(context: AdmissionContext, *, may_use_free: bool) -> Rate | None:
    """Return the limit of a minute that a request counts towards; None where none does."""
    request = context.request
    counts = not request.free or (may_use_free and context.counts_as_free)
    return request.rate if counts else None


def count_request(context: AdmissionContext, *, may_use_free: bool) -> None:
    """Count a request that begins towards the limit of a minute."""
    rate = counted_rate(context, may_use_free=may_use_free)
    if rate is not None:
        context.account.minute(rate).take(context.now)


def _rate_limited(context: AdmissionContext, at: datetime) -> RateLimited | None:
    account, request, rules = context.account, context.request, context.rules
    if request.free and not context.counts_as_free:
        return None
    most = free_requests_a_day(account.facts.credits, rules)
    if request.free and account.free_used(context.today) >= most:
        return no_free_requests(context)
    if (rate := request.rate) is None:
        return None
    wait = account.minute(rate).wait(rate.per_minute, context.now)
    return None if wait <= 0 else too_many_in_a_minute(rate, wait, at)


def too_many_in_a_minute(rate: Rate, wait: float, at: datetime) -> RateLimited:
    """Return the refusal of a request of which there were too many in the last minute."""
    return _too_many(
        f"Rate limit exceeded: {rate.bucket}. Wait {ceil(wait)} seconds.",
        RateWindow(rate.per_minute, 0, at + timedelta(seconds=wait)),
    )


def no_free_requests(context: AdmissionContext) -> RateLimited:
    """Return the refusal of a request to a free model where nothing is left of its UTC day."""
    raised = context.rules.free_per_day_raised
    limit = free_requests_a_day(context.account.facts.credits, context.rules)
    more = f" Purchased credits raise it to {raised} requests a day." if limit < raised else ""
    return _too_many(
        f"Rate limit exceeded: {FREE_PER_DAY}. Wait for the next UTC day.{more}",
        RateWindow(limit, 0, _midnight(context)),
    )


def _too_many(message: str, window: RateWindow) -> RateLimited:
    metadata = {"error_type": RateLimited.code, "headers": window.headers()}
    return RateLimited(message, metadata=metadata, window=window)


def _midnight(context: AdmissionContext) -> datetime:
    return resets_at(Reset.DAILY, context.today)


# Limits of credits


def credit_refusal(context: AdmissionContext) -> AdmissionRefusal | None:
    """Return why a request may not begin for want of credits; None where it may."""
    budget = budget_nano(context)
    return (
        _of_keys(context, _spent)
        or _no_credits(context)
        or _heavier_than_budget(context, budget)
        or _of_keys(context, _held)
        or _held_budget(context, budget)
        or _held_credits(context)
    )


def limits_too_small(context: AdmissionContext) -> Collection[Source]:
    """Return the limits of credits in which a request does not fit now, whichever refuses it."""
    budget = budget_nano(context)
    refusals: dict[Source, AdmissionRefusal | None] = {
        held.label.source: _spent(context, held) or _held(context, held)
        for held in context.counted_keys
    }
    refusals |= {
        "credits": _no_credits(context) or _held_credits(context),
        "in_flight_budget": _heavier_than_budget(context, budget) or _held_budget(context, budget),
    }
    return {source for source, refused in refusals.items() if refused is not None}


def current_credit_limits(
    context: AdmissionContext, refused: AdmissionRefusal | None
) -> Sequence[CreditLimit]:
    """Return every limit of credits that holds for a request; the one that refuses it first."""
    account = context.account
    of_keys = (key.credit_limit(context.today, label.source) for key, label in context.keys)
    found = [limit for limit in of_keys if limit is not None]
    if account.needs_credits:
        owned, held = account.credits, account.held_nano + account.facts.reserved_nano
        found.append(CreditLimit("credits", owned.total_nano, owned.used_nano, held))
    if (budget := budget_nano(context)) is not None:
        account.in_flight.held_nano(context.now)
        recent, running = account.in_flight.recent_nano, account.in_flight.running_nano
        found.append(CreditLimit("in_flight_budget", budget, recent, running))
    return sorted(found, key=lambda limit: refused is None or limit.source != refused.source)


def budget_nano(context: AdmissionContext) -> int | None:
    """Return what all requests in flight may hold: a part of the balance, up to the ceiling.

    What batches have reserved is no part of that balance. None where the budget does not hold for
    a request.

    Source: its second and fifth rule: prepaid accounts below a balance, and (if that is switched
    on) those that never used anything; not free models, own provider keys, nor what has no token
    cost.
    """
    account, request, rules = context.account, context.request, context.rules
    if account.facts.type is not AccountType.PREPAID or not request.estimate_nano:
        return None
    available = account.available_nano
    if available >= rules.threshold_nano and not (rules.new_accounts and account.is_new):
        return None
    part = available * rules.fraction.numerator // rules.fraction.denominator
    return max(0, min(part, rules.ceiling_nano))


def contended_credits(context: AdmissionContext) -> Collection[str]:
    """Return whose credits a request takes where others may hold them: keys' and the account's."""
    found = [key.hash for key, _, _ in context.counted_keys if key.limit.limit_nano is not None]
    if context.takes_credits or budget_nano(context) is not None:
        found.append(context.request.account_id)
    return found


def awaited_credits(context: AdmissionContext, refused: AdmissionRefusal) -> str:
    """Return whose credits a request waits for: its key's, its payer's or the account's."""
    hashes = (key.hash for key, label in context.keys if label.source == refused.source)
    return next(hashes, context.request.account_id)


def negative_balance(balance_nano: int) -> AdmissionRefusal:
    """Return the refusal of everything, free models too, where the balance is negative."""
    return AdmissionRefusal(
        "negative_balance",
        "credits",
        f"The account's balance is negative ({format_credits(balance_nano)}); that refuses free "
        "models, too.",
        "Add credits.",
    )


def _batches(reserved_nano: int) -> str:
    if not reserved_nano:
        return ""
    return f"; batches have reserved {format_credits(reserved_nano)} credits"


def _of_keys(
    context: AdmissionContext,
    refuses: Callable[[AdmissionContext, HeldKey], AdmissionRefusal | None],
) -> AdmissionRefusal | None:
    """Return why the first of the keys that refuses a request does; None where none does."""
    for held in context.counted_keys:
        if (refused := refuses(context, held)) is not None:
            return refused
    return None


# Refusals that waiting would not change


def _spent(context: AdmissionContext, held: HeldKey) -> AdmissionRefusal | None:
    key, label, weight = held
    limit = key.limit.limit_nano
    if limit is None:
        return None
    left = key.left_nano(limit, context.today)
    batches = _batches(key.reserved_nano)
    if left <= 0:
        return AdmissionRefusal(
            "key_limit_exhausted",
            label.source,
            f"{label.limit.capitalize()} of {format_credits(limit)} credits is used up "
            f"({format_credits(key.used_nano(context.today))} used){batches}.",
            f"Raise {label.limit}{_or_wait(context, key)}.",
        )
    if weight > left:
        return AdmissionRefusal(
            "weight_exceeds_key_limit",
            label.source,
            f"{_may_cost(context, weight, left)}; {format_credits(left)} are left of {label.limit}"
            f"{batches}.",
            f"{_remedy(context, weight, left, f'raise {label.limit}')}{_or_wait(context, key)}.",
        )
    return None


def _may_cost(context: AdmissionContext, weight_nano: int, left_nano: int) -> str:
    request, cost = context.request, format_credits(weight_nano)
    if left_nano < request.fee_nano <= weight_nano:
        return f"The request's fee alone is {format_credits(request.fee_nano)} credits"
    if request.open_ended:
        parts = "fee and prompt" if request.fee_nano else "prompt"
        return f"The request's {parts} alone may cost {cost} credits"
    return f"The request may cost {cost} credits"


def _remedy(context: AdmissionContext, weight_nano: int, left_nano: int, otherwise: str) -> str:
    """Return what makes a request fit: nothing that it asks for lowers its fee."""
    if left_nano < context.request.fee_nano <= weight_nano:
        return otherwise[0].upper() + otherwise[1:]
    return f"Lower max_tokens or the prompt's size, or {otherwise}"


def _or_wait(context: AdmissionContext, key: KeyState) -> str:
    """Return what a person may wait for to have more of a key's limit."""
    every = key.limit.reset
    reset = None if every is None else iso_utc_seconds(resets_at(every, context.today))
    return (f", or wait for its reset at {reset}" if reset else "") + (
        _OR_BATCHES if key.reserved_nano else ""
    )


def _no_credits(context: AdmissionContext) -> AdmissionRefusal | None:
    account, balance = context.account, context.account.balance_nano
    if not account.needs_credits:
        return None
    if not context.takes_credits or context.weight_nano <= account.available_nano > 0:
        return negative_balance(balance) if balance < 0 else None
    reserved, available = account.facts.reserved_nano, account.available_nano
    weight = context.weight_nano
    or_batches = _OR_BATCHES if reserved else ""
    if account.available_nano <= 0:
        return AdmissionRefusal(
            "insufficient_credits",
            "credits",
            f"The account has no credits left (balance {format_credits(balance)})"
            f"{_batches(reserved)}.",
            f"Add credits{or_batches}.",
        )
    return AdmissionRefusal(
        "weight_exceeds_credits",
        "credits",
        f"{_may_cost(context, weight, available)}; {format_credits(available)} are left of the "
        f"account's balance{_batches(reserved)}.",
        f"{_remedy(context, weight, available, 'add credits')}{or_batches}.",
    )


def _heavier_than_budget(context: AdmissionContext, budget: int | None) -> AdmissionRefusal | None:
    request = context.request
    if budget is None or request.estimate_nano <= budget:
        return None
    why = ", since it names no max_tokens," if request.open_ended else ""
    return AdmissionRefusal(
        "weight_exceeds_budget",
        "credits",
        f"The request would hold {format_credits(request.estimate_nano)} credits{why} and the "
        f"whole in-flight budget is {format_credits(budget)}"
        f"{_batches(context.account.facts.reserved_nano)}.",
        "Set max_tokens or lower it, shorten the prompt, or add credits; the same request again "
        "does not help.",
    )


# What others hold


def _held(context: AdmissionContext, held: HeldKey) -> AdmissionRefusal | None:
    key, label, weight = held
    limit = key.limit.limit_nano
    if limit is None or not key.held_nano:
        return None
    left = key.left_nano(limit, context.today) - key.held_nano
    if left > 0 and weight <= left:
        return None
    return AdmissionRefusal(
        "key_limit_held",
        label.source,
        f"Requests under way hold {format_credits(key.held_nano)} credits of {label.limit}; "
        f"{format_credits(max(0, left))} are left{_batches(key.reserved_nano)}.",
        f"Wait for them and send the request again, or raise {label.limit}.",
        retry_after=when_others_end(context),
    )


def _held_credits(context: AdmissionContext) -> AdmissionRefusal | None:
    account, held = context.account, context.account.held_nano
    if not context.takes_credits or context.weight_nano <= account.available_nano - held:
        return None
    return AdmissionRefusal(
        "credits_held",
        "credits",
        f"Requests under way may cost {format_credits(held)} credits of the account's balance, "
        f"this one {format_credits(context.weight_nano)}; {format_credits(account.available_nano)} "
        f"are left{_batches(account.facts.reserved_nano)}.",
        "Wait for them and send the request again, lower max_tokens, or add credits.",
        retry_after=when_others_end(context),
    )


def when_others_end(context: AdmissionContext) -> float:
    """Return after how many seconds to try again, where nobody knows how long others take."""
    return max(1.0, context.rules.settlement_seconds)


def _held_budget(context: AdmissionContext, budget: int | None) -> AdmissionRefusal | None:
    if budget is None:
        return None
    estimate, in_flight = context.request.estimate_nano, context.account.in_flight
    held = in_flight.held_nano(context.now)
    excess = held + estimate - budget
    if excess <= 0:
        return None
    wait = in_flight.seconds_until(excess, context.now)
    return AdmissionRefusal(
        "in_flight_budget_exhausted",
        "in_flight_budget",
        f"Requests under way or just ended hold {format_credits(held)} of an in-flight budget of "
        f"{format_credits(budget)} credits; this one needs {format_credits(estimate)}"
        f"{_batches(context.account.facts.reserved_nano)}.",
        "Wait a moment and send the request again, lower max_tokens, or add credits.",
        retry_after=when_others_end(context) if wait is None else ceil(wait),
    )


# Limits of reservations


def reservation_refusal(
    amount_nano: int,
    account: AccountFacts,
    keys: Sequence[KeyStatus],
    with_own_nano: int | None = None,
) -> AdmissionRefusal | None:
    """Return why an amount cannot be reserved with a key, and the one that answers for it, if any.

    A batch that costs nothing is refused, as free models are, by a negative balance alone. What own
    provider keys may take besides counts where limits include it.
    """
    for key, label in zip(keys, LABELS, strict=False):
        nano = with_own_nano if key.limit.include_byok and with_own_nano else amount_nano
        if nano and (refused := _beyond_key(nano, key, label)) is not None:
            return refused
    if not amount_nano:
        balance = account.credits.balance_nano
        return negative_balance(balance) if account.type.needs_credits and balance < 0 else None
    return _beyond_credits(amount_nano, account)


def held_by_requests(amount_nano: int) -> AdmissionRefusal:
    """Return the refusal of a batch for which requests under way leave too little."""
    return AdmissionRefusal(
        "credits_held",
        "credits",
        f"The batch may cost {format_credits(amount_nano)} credits; requests under way hold what "
        "would be left for it.",
        "Wait for them and send the batch again, or make it smaller.",
        retry_after=1.0,
    )


def reservation_limits(
    account: AccountFacts, keys: Sequence[KeyStatus], refused: AdmissionRefusal
) -> Sequence[CreditLimit]:
    """Return every limit of credits that holds for a batch; the one that refuses it first."""
    found: list[CreditLimit] = []
    for key, label in zip(keys, LABELS, strict=False):
        if (own := key.own_budget) is not None:
            limit, used, reserved = own.limit_nano, own.spend_nano, key.reserved_nano
            found.append(CreditLimit(label.source, limit, used, reserved, own.resets_at))
    if account.type.needs_credits:
        owned, reserved = account.credits, account.reserved_nano
        found.append(CreditLimit("credits", owned.total_nano, owned.used_nano, reserved))
    return sorted(found, key=lambda limit: limit.source != refused.source)


def _beyond_key(amount_nano: int, key: KeyStatus, label: LimitLabel) -> AdmissionRefusal | None:
    limit, reserved = key.own_budget, key.reserved_nano
    if limit is None or amount_nano <= limit.remaining_nano - reserved:
        return None
    left = max(0, limit.remaining_nano - reserved)
    reset = limit.resets_at
    wait = "" if reset is None else f", or wait for its reset at {iso_utc_seconds(reset)}"
    return AdmissionRefusal(
        "batch_exceeds_key_limit",
        label.source,
        f"The batch may cost {format_credits(amount_nano)} credits; {format_credits(left)} are "
        f"left of {label.limit} of {format_credits(limit.limit_nano)} "
        f"({format_credits(limit.spend_nano)} used, {format_credits(reserved)} reserved for "
        "batches).",
        f"Make it smaller, lower max_tokens, or raise {label.limit}{wait}.",
    )


def _beyond_credits(amount_nano: int, account: AccountFacts) -> AdmissionRefusal | None:
    balance, reserved = account.credits.balance_nano, account.reserved_nano
    if not account.type.needs_credits or amount_nano <= balance - reserved:
        return None
    return AdmissionRefusal(
        "batch_exceeds_credits",
        "credits",
        f"The batch may cost {format_credits(amount_nano)} credits; "
        f"{format_credits(max(0, balance - reserved))} are left (balance "
        f"{format_credits(balance)}, {format_credits(reserved)} reserved for batches).",
        "Make it smaller, lower max_tokens, add credits, or wait for other batches to end.",
    )
