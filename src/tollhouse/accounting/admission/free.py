"""Limits of requests: those to free models, and those to a model that has its own.

Source: the public gateway's free-model limits: 20 a minute; 50 a UTC day, 1,000 from ten purchased
credits on, where one credit less is enough; for an account, however many keys it has.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.accounting.admission import refusals
from tollhouse.accounting.admission.types import FREE_PER_DAY, RequestCap
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import Reset
from tollhouse.accounting.windows import resets_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tollhouse.accounting.admission.account import AccountState
    from tollhouse.accounting.admission.decide import Case
    from tollhouse.accounting.admission.types import Claim
    from tollhouse.accounting.rules import Rules
    from tollhouse.kernel.errors import RateLimited


def is_gated(account: AccountState, claim: Claim) -> bool:
    """Tell whether a request counts towards the limits of free models.

    Not that of an exempt account, nor one with own provider keys.
    """
    return claim.free and not claim.own_key and not account.facts.free_limits_exempt


def a_day(account: AccountState, rules: Rules) -> int:
    """Return how many requests to free models an account has in a UTC day."""
    return free_requests_a_day(account.facts.credits, rules)


def room(case: Case, at: datetime) -> bool:
    """Tell whether a request may use free models; one that wants paid ones too goes on without.

    Args:
        case: The request.
        at: The time of day.

    Raises:
        RateLimited: It may not, and wants nothing else; or its model's own limit is reached.
    """
    claim, refused = case.claim, _refusal(case, at)
    if refused is None:
        return claim.free
    if claim.free and not claim.only_free:
        return False
    raise refused


def caps(case: Case, at: datetime) -> Sequence[RequestCap]:
    """Return every limit of requests that holds for a request, as it stands.

    Args:
        case: The request.
        at: The time of day.
    """
    account, claim, found = case.account, case.claim, list[RequestCap]()
    if _is_exempt(case):
        return found
    if claim.rate is not None:
        used, leaves = account.minute(claim.rate).standing(case.now)
        free_again = None if leaves is None else at + timedelta(seconds=leaves)
        found.append(RequestCap(claim.rate.bucket, claim.rate.per_minute, used, 0, free_again))
    if claim.free:
        limit, held = a_day(account, case.rules), account.free_held
        used, midnight = account.free_used(case.today) - held, resets_at(Reset.DAILY, case.today)
        found.append(RequestCap(FREE_PER_DAY, limit, used, held, midnight))
    return found


def take(case: Case, *, may_use_free: bool) -> None:
    """Count a request that begins towards the limit of a minute."""
    claim = case.claim
    if claim.rate is None or _is_exempt(case) or (claim.free and not may_use_free):
        return
    case.account.minute(claim.rate).take(case.now)


def _refusal(case: Case, at: datetime) -> RateLimited | None:
    account, claim = case.account, case.claim
    if _is_exempt(case):
        return None
    if claim.free and account.free_used(case.today) >= (limit := a_day(account, case.rules)):
        return refusals.too_many_a_day(limit, case.rules.free_per_day_raised, case.today)
    if claim.rate is None:
        return None
    wait = account.minute(claim.rate).wait(claim.rate.per_minute, case.now)
    return refusals.too_many_a_minute(claim.rate, wait, at) if wait > 0 else None


def _is_exempt(case: Case) -> bool:
    return case.claim.free and not is_gated(case.account, case.claim)
