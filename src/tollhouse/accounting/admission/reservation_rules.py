"""Whether credits can be reserved for a batch: pure.

    key limits   what is left of their windows, without what is reserved of them: the key's own,
                 then that of the key that answers for it
    balance      what is left of the credits, without what the account's batches have reserved

What requests under way hold is not looked at: they are over long before a batch is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.credit_rules import OWN, PAYERS, negative_balance
from tollhouse.accounting.admission.types import AdmissionRefusal, CreditLimit
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.money import format_credits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tollhouse.accounting.admission.credit_rules import LimitLabel
    from tollhouse.accounting.types import Budget, Credits, KeyStanding


@dataclass(frozen=True, slots=True)
class KeyFunds:
    """What a key may still use."""

    limit: Budget | None = None
    """None where it has no limit."""
    reserved_nano: int = 0
    """By its batches, and by those that it answers for."""


@dataclass(frozen=True, slots=True)
class AvailableFunds:
    """What a batch may be paid with."""

    credits: Credits
    needs_credits: bool
    """Whether the account is refused where its credits do not suffice."""
    reserved_nano: int = 0
    """By the account's batches."""
    key: KeyFunds = KeyFunds()
    payer: KeyFunds | None = None
    """Of the key that answers for it; None where none does."""


def key_funds(standing: KeyStanding) -> KeyFunds:
    """Return what a key may still use."""
    return KeyFunds(standing.own_budget, standing.reserved_nano)


def refusal(amount_nano: int, funds: AvailableFunds) -> AdmissionRefusal | None:
    """Return why an amount cannot be reserved; None where it can.

    A batch that costs nothing is refused, as free models are, by a negative balance alone.
    """
    if not amount_nano:
        balance = funds.credits.balance_nano
        return negative_balance(balance) if funds.needs_credits and balance < 0 else None
    beyond_keys = (_beyond_key(amount_nano, *each) for each in _keys(funds))
    return next(filter(None, beyond_keys), None) or _beyond_credits(amount_nano, funds)


def current_limits(funds: AvailableFunds, refused: AdmissionRefusal) -> Sequence[CreditLimit]:
    """Return every limit of credits that holds for a batch; the one that refuses it first."""
    found: list[CreditLimit] = []
    for key, label in _keys(funds):
        if (limit := key.limit) is not None:
            reserved = key.reserved_nano
            found.append(
                CreditLimit(
                    label.source, limit.limit_nano, limit.spend_nano, reserved, limit.resets_at
                )
            )
    if funds.needs_credits:
        owned = funds.credits
        found.append(CreditLimit("credits", owned.total_nano, owned.used_nano, funds.reserved_nano))
    return sorted(found, key=lambda limit: limit.source != refused.source)


def _keys(funds: AvailableFunds) -> Iterator[tuple[KeyFunds, LimitLabel]]:
    """Yield the keys label limits hold, and what each is called."""
    yield funds.key, OWN
    if funds.payer is not None:
        yield funds.payer, PAYERS


def _beyond_key(amount_nano: int, key: KeyFunds, label: LimitLabel) -> AdmissionRefusal | None:
    limit, reserved = key.limit, key.reserved_nano
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


def _beyond_credits(amount_nano: int, funds: AvailableFunds) -> AdmissionRefusal | None:
    balance, reserved = funds.credits.balance_nano, funds.reserved_nano
    if not funds.needs_credits or amount_nano <= balance - reserved:
        return None
    return AdmissionRefusal(
        "batch_exceeds_credits",
        "credits",
        f"The batch may cost {format_credits(amount_nano)} credits; "
        f"{format_credits(max(0, balance - reserved))} are left (balance "
        f"{format_credits(balance)}, {format_credits(reserved)} reserved for batches).",
        "Make it smaller, lower max_tokens, add credits, or wait for other batches to end.",
    )
