"""What a request claims of its account: the most that the ways in which it may be served can cost.

Pure. The dearest way counts, since a fallback may be dearer than the first choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import FREE_PER_MINUTE, Claim, Rate
from tollhouse.accounting.pricing import estimate
from tollhouse.inference.weights import demand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.rules import Rules
    from tollhouse.inference.call import Call
    from tollhouse.inference.routing import Way
    from tollhouse.inference.weights import Demand

_PER_MINUTE = "requests-per-min"


def claim_of(generation_id: str, call: Call, ways: Sequence[Way], rules: Rules) -> Claim:
    """Return what a request claims.

    Args:
        generation_id: The reply's id.
        call: The request.
        ways: How it may be served, at least one.
        rules: The operator's numbers.
    """
    subject = call.subject
    claim = Claim(generation_id, subject.account_id, subject.key_hash, call.received_at)
    claim.payer_hash = subject.payer_hash
    # A free model behind a paid one counts, too: the paid one may be there to be refused.
    claim.rate = _rate(ways[0], rules)
    if claim.rate is None:
        claim.rate = next((_rate(way, rules) for way in ways if is_limited(way)), None)
    wanted: Demand | None = None
    limited = 0
    for way in ways:
        limited += is_limited(way)
        if not way.endpoint.price.is_free:
            wanted = demand(call.request) if wanted is None else wanted
            claim.estimate_nano = max(claim.estimate_nano, _estimate(wanted, way, rules))
    claim.free, claim.only_free = limited > 0, limited == len(ways)
    if wanted is not None:
        claim.paid = True
        claim.open_ended = wanted.output_tokens is None
    return claim


def is_limited(way: Way) -> bool:
    """Tell whether a way counts towards the limits of free models."""
    return way.model.is_free_variant and way.endpoint.free_limits


def open_to(claim: Claim, ways: Sequence[Way], *, may_use_free: bool) -> Sequence[Way]:
    """Return those of a request's ways that the limits of free models leave."""
    if claim.free and not may_use_free:
        return [way for way in ways if not is_limited(way)]
    return ways


def _estimate(wanted: Demand, way: Way, rules: Rules) -> int:
    price, cap = way.endpoint.price, rules.request_cap_nano
    return estimate(wanted.input_tokens, wanted.output_tokens, price, cap)


def _rate(way: Way, rules: Rules) -> Rate | None:
    own = way.model.requests_per_minute
    if is_limited(way):
        if own is not None:
            return Rate(FREE_PER_MINUTE, way.model.id, own)
        return Rate(FREE_PER_MINUTE, None, rules.free_per_minute)
    return None if own is None else Rate(_PER_MINUTE, way.model.id, own)
