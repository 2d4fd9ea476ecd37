"""Limits of requests: those to free models, and those to a model that has its own.

Source: the public gateway's free-model limits: 20 a minute; 50 a UTC day, 1,000 from ten purchased
credits on, where one credit less is enough; for an account, however many keys it has.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.accounting.admission import refusals
from tollhouse.accounting.admission.types import FREE_PER_DAY, RequestLimit
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import Reset
from tollhouse.accounting.windows import resets_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tollhouse.accounting.admission.account_state import AccountState
    from tollhouse.accounting.admission.credit_rules import AdmissionContext
    from tollhouse.accounting.admission.types import AdmissionRequest
    from tollhouse.accounting.rules import AccountingRules
    from tollhouse.kernel.errors import RateLimited


def is_gated(account: AccountState, request: AdmissionRequest) -> bool:
    """Tell whether a request counts towards the limits of free models.

    Not that of an exempt account, nor one with own provider keys.
    """
    return request.free and not request.own_key and not account.facts.free_limits_exempt


def requests_per_day(account: AccountState, rules: AccountingRules) -> int:
    """Return how many requests to free models an account has in a UTC day."""
    return free_requests_a_day(account.facts.credits, rules)


def check_request_limits(context: AdmissionContext, at: datetime) -> bool:
    """Tell whether a request may use free models; one that wants paid ones too goes on without.

    Args:
        context: The request.
        at: The time of day.

    Raises:
        RateLimited: It may not, and wants nothing else; or its model's own limit is reached.
    """
    request, refused = context.request, _refusal(context, at)
    if refused is None:
        return request.free
    if request.free and not request.only_free:
        return False
    raise refused


def current_limits(context: AdmissionContext, at: datetime) -> Sequence[RequestLimit]:
    """Return every limit of requests that holds for a request, as it stands.

    Args:
        context: The request.
        at: The time of day.
    """
    account, request, found = context.account, context.request, list[RequestLimit]()
    if _is_exempt(context):
        return found
    if request.rate is not None:
        used, leaves = account.minute(request.rate).standing(context.now)
        free_again = None if leaves is None else at + timedelta(seconds=leaves)
        found.append(
            RequestLimit(request.rate.bucket, request.rate.per_minute, used, 0, free_again)
        )
    if request.free:
        limit, held = requests_per_day(account, context.rules), account.free_held
        used, midnight = (
            account.free_used(context.today) - held,
            resets_at(Reset.DAILY, context.today),
        )
        found.append(RequestLimit(FREE_PER_DAY, limit, used, held, midnight))
    return found


def take(context: AdmissionContext, *, may_use_free: bool) -> None:
    """Count a request that begins towards the limit of a minute."""
    request = context.request
    if request.rate is None or _is_exempt(context) or (request.free and not may_use_free):
        return
    context.account.minute(request.rate).take(context.now)


def _refusal(context: AdmissionContext, at: datetime) -> RateLimited | None:
    account, request = context.account, context.request
    if _is_exempt(context):
        return None
    if request.free and account.free_used(context.today) >= (
        limit := requests_per_day(account, context.rules)
    ):
        return refusals.too_many_a_day(limit, context.rules.free_per_day_raised, context.today)
    if request.rate is None:
        return None
    wait = account.minute(request.rate).wait(request.rate.per_minute, context.now)
    return refusals.too_many_a_minute(request.rate, wait, at) if wait > 0 else None


def _is_exempt(context: AdmissionContext) -> bool:
    return context.request.free and not is_gated(context.account, context.request)
