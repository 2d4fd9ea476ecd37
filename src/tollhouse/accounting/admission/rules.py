"""Whether a request may begin, or a batch be paid for: pure, apart from the state that it reads.

    requests          of its model in a minute; of free models in a minute and in a UTC day
    limits            what is used, held, and would be held: of who made the key; of the end user;
                      of the workspace; of the key; of its payer
    balance           the same of the account's credits
    in-flight budget  a part of the balance, for all requests at once

`budgets.py` says what a request holds of limits and of the balance. What batches have reserved is
taken from both before; their requests are no part of the in-flight budget. A limit that only other
requests' holds exceed can be waited for; any other refuses at once.

A batch reserves from what is left of these limits (not of end users': it has many), and of the
balance. Requests under way do not count: they are over long before a batch is.

Source: the order of the public gateway's checks, the six rules of its in-flight budget, its table
of 429 errors, and its free-model limits: 20 a minute; 50 a UTC day, 1,000 from ten purchased
credits on, where one credit less is enough; for an account, however many keys it has.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.accounting.admission.budgets import budget_id, in_flight_id, reserved_of
from tollhouse.accounting.admission.types import (
    FREE_PER_DAY,
    AdmissionRefusal,
    CreditLimit,
    Rate,
    RequestLimit,
    Source,
    label_of,
)
from tollhouse.accounting.leases import FREE
from tollhouse.accounting.limits import Budget, resets_at
from tollhouse.accounting.types import BudgetScope, Reset
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import RateLimited, RateWindow
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tollhouse.accounting.admission.budgets import AdmissionContext, SpendClaim


# Limits of requests


def check_request_limits(context: AdmissionContext, at: datetime) -> bool:
    """Tell whether a request may use free models; one that wants paid ones too goes on without.

    Raises:
        RateLimited: It may not, and wants nothing else; or its model's own limit is reached.
    """
    account, request, refused = context.account, context.request, None
    if not request.free or context.counts_as_free:
        day, rate = account.free.on(context.today), request.rate
        if request.free and day.left_nano <= day.held_nano:
            refused = no_free_requests(context)
        elif rate is not None:
            wait = account.minutes[rate.model].wait(rate.per_minute, context.now)
            refused = too_many_in_a_minute(rate, wait, at) if wait > 0 else None
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
        used, leaves = account.minutes[rate.model].current(context.now)
        free_again = None if leaves is None else at + timedelta(seconds=leaves)
        found.append(RequestLimit(rate.bucket, rate.per_minute, used, 0, free_again))
    if request.free:
        day = account.free.on(context.today)
        found.append(
            RequestLimit(FREE_PER_DAY, day.limit_nano, day.spend_nano, day.held_nano, day.resets_at)
        )
    return found


def counted_rate(context: AdmissionContext, *, may_use_free: bool) -> Rate | None:
    """Return the limit of a minute that a request counts towards; None where none does."""
    request = context.request
    counts = not request.free or (may_use_free and context.counts_as_free)
    return request.rate if counts and not request.free_later else None


def too_many_in_a_minute(rate: Rate, wait: float, at: datetime) -> RateLimited:
    """Return the refusal of a request of which there were too many in the last minute."""
    return _too_many(
        f"Rate limit exceeded: {rate.bucket}. Wait {ceil(wait)} seconds.",
        RateWindow(rate.per_minute, 0, at + timedelta(seconds=wait)),
    )


def no_free_requests(context: AdmissionContext) -> RateLimited:
    """Return the refusal of a request to a free model where nothing is left of its UTC day."""
    raised, day = context.rules.free_per_day_raised, context.account.free.on(context.today)
    limit = day.limit_nano
    more = f" Purchased credits raise it to {raised} requests a day." if limit < raised else ""
    return _too_many(
        f"Rate limit exceeded: {FREE_PER_DAY}. Wait for the next UTC day.{more}",
        RateWindow(limit, 0, resets_at(Reset.DAILY, context.today)),
    )


def _too_many(message: str, window: RateWindow) -> RateLimited:
    metadata = {"error_type": RateLimited.code, "headers": window.headers()}
    return RateLimited(message, metadata=metadata, window=window)


# What a refusal for want of credits says

_NO_FACTS: Final[Mapping[str, str]] = MappingProxyType({})


class Words(NamedTuple):
    """A refusal, with the facts in braces that `_refusal` and `_of_request` know."""

    reason: str
    message: str
    remedy: str
    source: Source | None = None
    """Of the limit that refuses, where it is not the budget's."""


class Refusals(NamedTuple):
    """What a kind of budget says where it refuses."""

    spent: Words
    """Nothing is left of it."""
    small: Words
    """A request does not fit into what is left."""
    held: Words
    """Others hold what it would fit into."""
    batch: Words
    """A batch does not fit into what is left."""


_SMALL: Final = Words(
    "weight_exceeds_{noun}",
    "{may_cost}; {left} are left of {named}{batches}.",
    "{smaller}{or_reset}{or_batches}.",
)
_WAIT: Final = "Wait for them and send the request again"
OF_LIMITS: Final = Refusals(
    spent=Words(
        "{noun}_exhausted",
        "{Named} of {limit} credits is used up ({used} used){batches}.",
        "{Larger}{or_reset}{or_batches}.",
    ),
    small=_SMALL,
    held=Words(
        "{noun}_held",
        "Requests under way hold {held} credits of {named}; {free} are left{batches}.",
        f"{_WAIT}, or {{larger}}.",
    ),
    batch=Words(
        "batch_exceeds_{noun}",
        "The batch may cost {cost} credits; {left} are left of {named} of {limit} ({used} used, "
        "{reserved} reserved for batches).",
        "Make it smaller, lower max_tokens, or {larger}{or_reset}.",
    ),
)
OF_BALANCE: Final = Refusals(
    spent=Words(
        "insufficient_credits",
        "The account has no credits left (balance {balance}){batches}.",
        "{Larger}{or_batches}.",
    ),
    small=_SMALL,
    held=Words(
        "{noun}_held",
        "Requests under way may cost {held} credits of {named}, this one {cost}; {left} are left"
        "{batches}.",
        f"{_WAIT}, lower max_tokens, or {{larger}}.",
    ),
    batch=Words(
        "batch_exceeds_{noun}",
        "The batch may cost {cost} credits; {left} are left (balance {balance}, {reserved} "
        "reserved for batches).",
        "Make it smaller, lower max_tokens, {larger}, or wait for other batches to end.",
    ),
)
HELD_ELSEWHERE: Final = (
    "Requests under way hold what is left of {named}; this one may cost {cost} credits."
)
"""In other processes, which do not say how much."""
NEGATIVE: Final = Words(
    "negative_balance",
    "The account's balance is negative ({balance}); that refuses free models, too.",
    "{Larger}.",
)
TOO_HEAVY: Final = Words(
    "weight_exceeds_budget",
    "The request would hold {cost} credits{open_ended} and the whole in-flight budget is "
    "{whole}{batches}.",
    "Set max_tokens or lower it, shorten the prompt, or {larger}; the same request again does not "
    "help.",
)
IN_FLIGHT: Final = Words(
    "in_flight_budget_exhausted",
    "Requests under way or just ended hold {in_flight} of an in-flight budget of {whole} credits; "
    "this one needs {cost}{batches}.",
    "Wait a moment and send the request again, lower max_tokens, or {larger}.",
    "in_flight_budget",
)
IN_FLIGHT_ELSEWHERE: Final = (
    "Requests under way or just ended hold what is left of an in-flight budget of {whole} credits; "
    "this one needs {cost}{batches}."
)
BATCH_HELD: Final = Words(
    "credits_held",
    "The batch may cost {cost} credits; requests under way hold what would be left for it.",
    "Wait for them and send the batch again, or make it smaller.",
)


def _refusal(
    words: Words,
    budget: Budget,
    key_hash: str,
    cost_nano: int = 0,
    facts: Mapping[str, str] = _NO_FACTS,
) -> AdmissionRefusal:
    """Return the refusal of what a key asks and may cost so much, with facts of its own."""
    label, left, reserved = label_of(budget, key_hash), budget.left_nano, budget.reserved_nano
    amounts = {
        "limit": budget.limit_nano,
        "used": budget.spend_nano,
        "balance": budget.remaining_nano,
        "left": max(0, left),
        "held": budget.held_nano,
        "free": max(0, left - budget.held_nano),
        "reserved": reserved,
        "cost": cost_nano,
    }
    texts = {name: format_credits(nano) for name, nano in amounts.items()} | {
        "noun": label.noun,
        "named": label.named,
        "Named": _capital(label.named),
        "larger": label.remedy,
        "Larger": _capital(label.remedy),
        "batches": f"; batches have reserved {format_credits(reserved)} credits" * bool(reserved),
        "or_batches": ", or wait for batches to end" * bool(reserved),
        "or_reset": "",
    }
    if (reset := budget.resets_at) is not None:
        texts["or_reset"] = f", or wait for its reset at {iso_utc_seconds(reset)}"
    reason, message, remedy = (text.format_map({**texts, **facts}) for text in words[:3])
    return AdmissionRefusal(reason, words.source or label.source, message, remedy)


def _of_request(
    context: AdmissionContext,
    words: Words,
    budget: Budget,
    cost_nano: int,
    retry_after: float | None = None,
) -> AdmissionRefusal:
    """Return the refusal of a request: nothing that it asks for lowers its fee."""
    request, key_hash = context.request, context.key_hash
    larger, cost = label_of(budget, key_hash).remedy, format_credits(cost_nano)
    smaller = f"Lower max_tokens or the prompt's size, or {larger}"
    may_cost = f"The request may cost {cost} credits"
    if budget.left_nano < request.fee_nano <= cost_nano:
        may_cost = f"The request's fee alone is {format_credits(request.fee_nano)} credits"
        smaller = _capital(larger)
    elif request.open_ended:
        parts = "fee and prompt" if request.fee_nano else "prompt"
        may_cost = f"The request's {parts} alone may cost {cost} credits"
    facts = {
        "may_cost": may_cost,
        "smaller": smaller,
        "whole": format_credits(context.in_flight_nano() or 0),
        "in_flight": format_credits(context.account.in_flight.held_nano(context.now)),
        "open_ended": ", since it names no max_tokens," if request.open_ended else "",
    }
    refusal = _refusal(words, budget, key_hash, cost_nano, facts)
    return refusal if retry_after is None else refusal._replace(retry_after=retry_after)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _words(budget: Budget) -> Refusals:
    return OF_BALANCE if budget.scope is BudgetScope.ACCOUNT else OF_LIMITS


# Limits of credits


def credit_refusal(context: AdmissionContext) -> AdmissionRefusal | None:
    """Return why a request may not begin for want of credits; None where it may."""
    held, balance = None, context.account.balance
    for budget, nano in context.counted:
        left, least = budget.left_nano, nano or 1
        if least > left:
            words = _words(budget)
            return _of_request(context, words.small if left > 0 else words.spent, budget, nano)
        if least > left - budget.held_nano and held is None and _is_held(budget, nano):
            held = budget, nano
    if balance.spend_nano > balance.limit_nano:
        return _refusal(NEGATIVE, balance, "")
    if (whole := context.in_flight_nano()) is not None:
        estimate_nano = context.request.estimate_nano
        if estimate_nano > whole:
            return _of_request(context, TOO_HEAVY, balance, estimate_nano)
        wait = None if held and held[0] is not balance else _wait_in_flight(context, whole)
        if wait is not None:
            return _of_request(context, IN_FLIGHT, balance, estimate_nano, wait)
    if held is None:
        return None
    return _of_request(context, _words(held[0]).held, *held, _when_others_end(context))


def limits_too_small(context: AdmissionContext) -> Collection[Source]:
    """Return the limits of credits in which a request does not fit now, whichever refuses it."""
    found, whole = set[Source](), context.in_flight_nano()
    for budget, nano in context.counted:
        if max(nano, 1) > budget.left_nano or (budget.held_nano and _is_held(budget, nano)):
            found.add(label_of(budget, context.key_hash).source)
    if context.account.balance.remaining_nano < 0:
        found.add("credits")
    if whole is not None and _wait_in_flight(context, whole) is not None:
        found.add("in_flight_budget")
    return found


def _is_held(budget: Budget, nano: int) -> bool:
    """Tell whether others hold what a request needs; of a limit it needs something in any case."""
    least = nano or int(budget.scope is not BudgetScope.ACCOUNT)
    return least > budget.left_nano - budget.held_nano


def _wait_in_flight(context: AdmissionContext, whole: int) -> float | None:
    """Return when a request fits into the in-flight budget; None: it does now."""
    in_flight = context.account.in_flight
    excess = in_flight.held_nano(context.now) + context.request.estimate_nano - whole
    if excess <= 0:
        return None
    wait = in_flight.seconds_until(excess, context.now)
    return _when_others_end(context) if wait is None else ceil(wait)


def _when_others_end(context: AdmissionContext) -> float:
    """Return after how many seconds to try again, where nobody knows how long others take."""
    return max(1.0, context.rules.settlement_seconds)


def current_credit_limits(
    context: AdmissionContext, refused: AdmissionRefusal | None
) -> Sequence[CreditLimit]:
    """Return every limit of credits that holds for a request; the one that refuses it first."""
    in_flight, more, whole = (
        context.account.in_flight,
        list[CreditLimit](),
        context.in_flight_nano(),
    )
    if whole is not None:
        in_flight.held_nano(context.now)
        recent, running = in_flight.recent_nano, in_flight.running_nano
        more = [CreditLimit("in_flight_budget", whole, recent, running)]
    return limits_shown(context.budgets, context.key_hash, refused, more)


def limits_shown(
    budgets: Sequence[Budget],
    key_hash: str,
    refused: AdmissionRefusal | None,
    more: Sequence[CreditLimit] = (),
) -> Sequence[CreditLimit]:
    """Return the limits that budgets are for what a key asks; the one that refuses it first."""
    found = [CreditLimit.of(budget, key_hash) for budget in budgets if budget.is_limited]
    first = None if refused is None else refused.source
    return sorted([*found, *more], key=lambda limit: first is not None and limit.source != first)


def contended(context: AdmissionContext) -> Sequence[Budget]:
    """Return what a request draws on where others may hold it."""
    return [budget for budget, _ in context.counted if budget.is_limited]


def awaited(context: AdmissionContext, refused: AdmissionRefusal) -> Budget:
    """Return what a request waits for; of the in-flight budget it is the balance."""
    for budget in context.budgets:
        if label_of(budget, context.key_hash).source == refused.source:
            return budget
    return context.account.balance


def held_elsewhere(context: AdmissionContext, claim: SpendClaim) -> AdmissionRefusal:
    """Return the refusal of a request to which others leave too little, in other processes.

    Raises:
        RateLimited: It is one to a free model, and they leave none of the day's.
    """
    if {budget.scope for budget in claim.short} == {FREE}:
        raise no_free_requests(context)
    account, wait = context.account, _when_others_end(context)
    short = (held for held in context.counted if budget_id(held[0], context.today) in claim.short)
    budget, nano = next(short, (account.balance, context.held_of(account.id)))
    if budget is account.balance and in_flight_id(context) in claim.short:
        words = IN_FLIGHT._replace(message=IN_FLIGHT_ELSEWHERE)
        return _of_request(context, words, budget, context.request.estimate_nano, wait)
    words = _words(budget).held._replace(message=HELD_ELSEWHERE)
    return _of_request(context, words, budget, nano, wait)


# Limits of reservations


def reservation_refusal(
    amount_nano: int, budgets: Sequence[Budget], key_hash: str, with_own_nano: int | None = None
) -> AdmissionRefusal | None:
    """Return why an amount cannot be reserved of some budgets, the last of which is the balance.

    A batch that costs nothing is refused, as free models are, by a negative balance alone. What own
    provider keys may take besides counts where limits include it.
    """
    for budget, nano in reserved_of(budgets, amount_nano, with_own_nano or amount_nano):
        if nano > budget.left_nano:
            return _refusal(_words(budget).batch, budget, key_hash, nano)
    if not amount_nano and budgets[-1].remaining_nano < 0:
        return _refusal(NEGATIVE, budgets[-1], key_hash)
    return None


def held_by_requests(amount_nano: int, balance: Budget) -> AdmissionRefusal:
    """Return the refusal of a batch for which requests under way leave too little."""
    return _refusal(BATCH_HELD, balance, "", amount_nano)._replace(retry_after=1.0)
