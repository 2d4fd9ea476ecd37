"""Whether a request has the credits to begin: pure, apart from the state that it reads.

    key limits        what the key used, holds, and would hold; then the same of its payer
    balance           the same of the account's credits
    in-flight budget  a part of the balance, for all requests at once

Of key limits and of the balance a request holds the most that it may cost. One that names no limit
of its output must be able to pay for its prompt; where what is left does not pay for all that its
model could write, it holds what is left, and is asked with a limit of its output.

What batches have reserved is taken from the key's limit and from the balance before that; their
requests are no part of the in-flight budget.

A limit that stays exceeded refuses at once. A limit that only other requests' holds exceed can be
waited for, because holds are released.

Source: the order of the public gateway's checks and the six rules of its in-flight budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.accounting.admission.types import AdmissionRefusal, CreditLimit, Source
from tollhouse.identity.types import AccountType
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import date

    from tollhouse.accounting.admission.account_state import AccountState
    from tollhouse.accounting.admission.key_state import KeyState
    from tollhouse.accounting.admission.types import AdmissionRequest
    from tollhouse.accounting.rules import AccountingRules

_OR_BATCHES = ", or wait for batches to end"


class LimitLabel(NamedTuple):
    """What a key's limit is called in a refusal."""

    source: Source
    limit: str


OWN: Final = LimitLabel("key_limit", "the key's limit")
PAYERS: Final = LimitLabel("payer_limit", "the limit of the key that answers for this intern")


@dataclass(slots=True)
class AdmissionContext:
    """A request and all that decides about it. Not frozen: one is made for every request."""

    account: AccountState
    key: KeyState
    request: AdmissionRequest
    rules: AccountingRules
    now: float
    """Seconds of a clock that never jumps."""
    payer: KeyState | None = None
    """The key that answers for `key`, where another one does: both limits hold."""
    keys: tuple[tuple[KeyState, LimitLabel], ...] = field(init=False)
    """All whose limits hold."""
    takes_credits: bool = field(init=False)
    """Whether the balance must cover it."""
    weight_nano: int = field(init=False)
    """What it holds of every limit that it counts towards, the in-flight budget apart."""

    def __post_init__(self) -> None:
        """Name the limits, and weigh the request."""
        own = (self.key, OWN)
        self.keys = (own,) if self.payer is None else (own, (self.payer, PAYERS))
        request = self.request
        self.takes_credits = (
            request.paid and not request.own_key and self.account.facts.type.needs_credits
        )
        self.weight_nano = _open_weight_nano(self) if request.open_ended else request.most_nano

    @property
    def today(self) -> date:
        """The UTC day that it counts to."""
        return self.request.now.date()

    def counts(self, key: KeyState) -> bool:
        """Tell whether the request can use up a key's limit."""
        return key.limit.include_byok if self.request.own_key else self.request.paid


def refusal(context: AdmissionContext) -> AdmissionRefusal | None:
    """Return why a request may not begin for want of credits; None where it may."""
    budget = budget_nano(context) if has_budget(context) else None
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
    budget = budget_nano(context) if has_budget(context) else None
    refusals: dict[Source, AdmissionRefusal | None] = {
        label.source: _spent(context, key, label) or _held(context, key, label)
        for key, label in context.keys
    }
    refusals |= {
        "credits": _no_credits(context) or _held_credits(context),
        "in_flight_budget": _heavier_than_budget(context, budget) or _held_budget(context, budget),
    }
    return {source for source, refused in refusals.items() if refused is not None}


def current_limits(
    context: AdmissionContext, refused: AdmissionRefusal | None = None
) -> Sequence[CreditLimit]:
    """Return every limit of credits that holds for a request; the one that refuses it first."""
    account = context.account
    found: list[CreditLimit] = []
    for key, label in context.keys:
        if (limit := key.credit_limit(context.today, label.source)) is not None:
            found.append(limit)
    if account.facts.type.needs_credits:
        owned, held = account.credits, account.held_nano + account.facts.reserved_nano
        found.append(CreditLimit("credits", owned.total_nano, owned.used_nano, held))
    if has_budget(context):
        account.in_flight.held_nano(context.now)
        recent, running = account.in_flight.recent_nano, account.in_flight.running_nano
        found.append(CreditLimit("in_flight_budget", budget_nano(context), recent, running))
    return sorted(found, key=lambda limit: refused is None or limit.source != refused.source)


def spendable_nano(context: AdmissionContext) -> int | None:
    """Return what a request may cost, where that is less than the most that it could."""
    request = context.request
    return (
        context.weight_nano
        if request.open_ended and context.weight_nano < request.most_nano
        else None
    )


def _open_weight_nano(context: AdmissionContext) -> int:
    """Return the weight of a request without a limit of its output: at most what is left.

    What others hold is not looked at: an answer is not cut short because of what is free again in a
    moment.
    """
    request, left = context.request, context.request.most_nano
    for key, _ in context.keys:
        if (limit := key.limit.limit_nano) is not None and context.counts(key):
            left = min(left, _left_of_key(context, key, limit))
    if context.takes_credits:
        left = min(left, context.account.available_nano)
    return max(request.least_nano, left)


def budget_nano(context: AdmissionContext) -> int:
    """Return what all requests in flight may hold: a part of the balance, up to the ceiling.

    What batches have reserved is no part of that balance.
    """
    fraction = context.rules.fraction
    part = context.account.available_nano * fraction.numerator // fraction.denominator
    return max(0, min(part, context.rules.ceiling_nano))


def has_budget(context: AdmissionContext) -> bool:
    """Tell whether the in-flight budget holds for a request.

    Source: its second and fifth rule: prepaid accounts below a balance, and (if that is switched
    on) those that never used anything; not free models, own provider keys, nor what has no token
    cost.
    """
    account, request = context.account, context.request
    if (
        account.facts.type is not AccountType.PREPAID
        or request.own_key
        or not request.estimate_nano
    ):
        return False
    below = account.available_nano < context.rules.threshold_nano
    return below or (context.rules.new_accounts and account.is_new)


def contended_credits(context: AdmissionContext) -> Collection[str]:
    """Return whose credits a request takes where others may hold them: keys' and the account's."""
    request = context.request
    keys = ((request.key_hash, context.key), (request.payer_hash, context.payer))
    found = [
        key_hash
        for key_hash, key in keys
        if key_hash and key and key.limit.limit_nano is not None and context.counts(key)
    ]
    return [*found, request.account_id] if context.takes_credits or has_budget(context) else found


def awaited_credits(request: AdmissionRequest, refused: AdmissionRefusal) -> str | None:
    """Return whose credits a request waits for: its key's, its payer's or the account's."""
    hashes = {"key_limit": request.key_hash, "payer_limit": request.payer_hash}
    return hashes.get(refused.source, request.account_id)


def negative_balance(balance_nano: int) -> AdmissionRefusal:
    """Return the refusal of everything, free models too, where the balance is negative."""
    return AdmissionRefusal(
        "negative_balance",
        "credits",
        f"The account's balance is negative ({format_credits(balance_nano)}); that refuses free "
        "models, too.",
        "Add credits.",
    )


def _left_of_key(context: AdmissionContext, key: KeyState, limit_nano: int) -> int:
    """Return what is left of a key's limit for requests, those under way included."""
    return limit_nano - key.used_nano(context.today) - key.reserved_nano


def _batches(reserved_nano: int) -> str:
    """Return what a message says of credits that batches have reserved, if they have."""
    if not reserved_nano:
        return ""
    return f"; batches have reserved {format_credits(reserved_nano)} credits"


def _of_keys(
    context: AdmissionContext,
    refuses: Callable[[AdmissionContext, KeyState, LimitLabel], AdmissionRefusal | None],
) -> AdmissionRefusal | None:
    """Return why the first of the keys that refuses a request does; None where none does."""
    for key, label in context.keys:
        if (refused := refuses(context, key, label)) is not None:
            return refused
    return None


# Refusals that waiting would not change


def _spent(context: AdmissionContext, key: KeyState, label: LimitLabel) -> AdmissionRefusal | None:
    limit = key.limit.limit_nano
    if limit is None or not context.counts(key):
        return None
    left = _left_of_key(context, key, limit)
    batches = _batches(key.reserved_nano)
    if left <= 0:
        return AdmissionRefusal(
            "key_limit_exhausted",
            label.source,
            f"{label.limit.capitalize()} of {format_credits(limit)} credits is used up "
            f"({format_credits(key.used_nano(context.today))} used){batches}.",
            f"Raise {label.limit}{_or_wait(context, key)}.",
        )
    if context.weight_nano > left:
        return AdmissionRefusal(
            "weight_exceeds_key_limit",
            label.source,
            f"{_may_cost(context)}; {format_credits(left)} are left of {label.limit}{batches}.",
            f"Lower max_tokens or the prompt's size, or raise {label.limit}"
            f"{_or_wait(context, key)}.",
        )
    return None


def _may_cost(context: AdmissionContext) -> str:
    """Return what a message says of a request that is too heavy."""
    cost = format_credits(context.weight_nano)
    if context.request.open_ended:
        return f"The request's prompt alone may cost {cost} credits"
    return f"The request may cost {cost} credits"


def _or_wait(context: AdmissionContext, key: KeyState) -> str:
    """Return what a person may wait for to have more of a key's limit."""
    cap = key.credit_limit(context.today)
    reset = None if cap is None else cap.resets_at
    return (f", or wait for its reset at {iso_utc_seconds(reset)}" if reset else "") + (
        _OR_BATCHES if key.reserved_nano else ""
    )


def _no_credits(context: AdmissionContext) -> AdmissionRefusal | None:
    account, balance = context.account, context.account.balance_nano
    if not account.facts.type.needs_credits:
        return None
    if not context.takes_credits or context.weight_nano <= account.available_nano > 0:
        return negative_balance(balance) if balance < 0 else None
    reserved = account.facts.reserved_nano
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
        f"{_may_cost(context)}; {format_credits(account.available_nano)} are left of the account's "
        f"balance{_batches(reserved)}.",
        f"Lower max_tokens or the prompt's size, or add credits{or_batches}.",
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


def _held(context: AdmissionContext, key: KeyState, label: LimitLabel) -> AdmissionRefusal | None:
    limit = key.limit.limit_nano
    if limit is None or not key.held_nano or not context.counts(key):
        return None
    left = _left_of_key(context, key, limit) - key.held_nano
    if left > 0 and context.weight_nano <= left:
        return None
    return AdmissionRefusal(
        "key_limit_held",
        label.source,
        f"Requests under way hold {format_credits(key.held_nano)} credits of {label.limit}; "
        f"{format_credits(max(0, left))} are left{_batches(key.reserved_nano)}.",
        f"Wait for them and send the request again, or raise {label.limit}.",
        retry_after=_when_others_end(context),
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
        retry_after=_when_others_end(context),
    )


def _when_others_end(context: AdmissionContext) -> float:
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
        retry_after=_when_others_end(context) if wait is None else ceil(wait),
    )
