"""What a request claims of its account: the most that the ways in which it may be served can cost.

Pure. The dearest way counts, since a fallback may be dearer than the first choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import FREE_PER_MINUTE, AdmissionRequest, Rate
from tollhouse.accounting.pricing import affordable, estimate, most
from tollhouse.inference.formats.messages.wire import DEFAULT_MAX_TOKENS
from tollhouse.inference.formats.tokens import MAX_TOKENS
from tollhouse.inference.types import Dialect
from tollhouse.inference.weights import LEAST_OUTPUT, limit_of_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.rules import AccountingRules
    from tollhouse.inference.call import Call
    from tollhouse.inference.routing import Way
    from tollhouse.inference.weights import Demand

_PER_MINUTE = "requests-per-min"


def claim_of(
    generation_id: str, call: Call, ways: Sequence[Way], rules: AccountingRules
) -> AdmissionRequest:
    """Return what a request claims.

    Args:
        generation_id: The reply's id.
        call: The request.
        ways: How it may be served, at least one.
        rules: The operator's numbers.
    """
    subject = call.subject
    claim = AdmissionRequest(generation_id, subject.account_id, subject.key_hash, call.received_at)
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
            wanted = call.demand() if wanted is None else wanted
            _raise_to(claim, wanted, way, rules)
    claim.free, claim.only_free = limited > 0, limited == len(ways)
    if wanted is not None:
        claim.paid = True
        claim.open_ended = wanted.output_tokens is None
    return claim


def is_limited(way: Way) -> bool:
    """Tell whether a way counts towards the limits of free models."""
    return way.model.is_free_variant and way.endpoint.free_limits


def open_to(claim: AdmissionRequest, ways: Sequence[Way], *, may_use_free: bool) -> Sequence[Way]:
    """Return those of a request's ways that the limits of free models leave."""
    if claim.free and not may_use_free:
        return [way for way in ways if not is_limited(way)]
    return ways


def most_output(wanted: Demand, way: Way) -> int:
    """Return the most tokens that a request's answers may take together, served in one way."""
    if wanted.output_tokens is not None:
        return wanted.output_tokens
    return _own_limit(wanted, way) * wanted.answers


def output_limit(wanted: Demand, ways: Sequence[Way], spendable_nano: int) -> int:
    """Return the limit of output, for each answer, with which a request costs no more than it may.

    It pays for the dearest of the ways, and no model refuses it for its size. Where not even a
    token is paid for, it is one token: no provider takes less.

    Args:
        wanted: What the request asks for; it sets no limit.
        ways: How it may be served, at least one.
        spendable_nano: What it may cost.
    """
    room = min(
        min(
            way.endpoint.max_completion_tokens or way.model.max_completion_tokens or MAX_TOKENS,
            max(1, way.model.context_length - wanted.input_tokens),
        )
        for way in ways
    )
    paid = (
        affordable(spendable_nano, wanted.input_tokens, wanted.images, way.endpoint.price)
        for way in ways
    )
    tokens = min((tokens for tokens in paid if tokens is not None), default=MAX_TOKENS)
    return min(room, limit_of_each(wanted, tokens))


def _raise_to(claim: AdmissionRequest, wanted: Demand, way: Way, rules: AccountingRules) -> None:
    """Raise a claim to what a request may cost in one more way."""
    price, tokens, images = way.endpoint.price, wanted.input_tokens, wanted.images
    held = estimate(tokens, wanted.output_tokens, price, rules.request_cap_nano)
    claim.estimate_nano = max(claim.estimate_nano, held)
    dearest = most(tokens, most_output(wanted, way), images, price)
    claim.most_nano = max(claim.most_nano, dearest)
    if wanted.output_tokens is None:
        least = most(tokens, _least_output(wanted, way), images, price)
        claim.least_nano = max(claim.least_nano, least)


def _own_limit(wanted: Demand, way: Way) -> int:
    """Return how much an answer takes at most where the request sets no limit."""
    known = way.endpoint.max_completion_tokens or way.model.max_completion_tokens
    if known is None and way.relay.dialect is Dialect.MESSAGES:
        known = DEFAULT_MAX_TOKENS + wanted.thoughts
    return known or way.model.context_length


def _least_output(wanted: Demand, way: Way) -> int:
    """Return how many tokens a request must be able to pay for beside its prompt.

    Thoughts take their budget, and OpenAI's responses have a least limit; others may be asked for
    a single token.
    """
    each = LEAST_OUTPUT if way.relay.dialect is Dialect.RESPONSES else 0
    return (each + wanted.thoughts) * wanted.answers


def _rate(way: Way, rules: AccountingRules) -> Rate | None:
    own = way.model.requests_per_minute
    if is_limited(way):
        if own is not None:
            return Rate(FREE_PER_MINUTE, way.model.id, own)
        return Rate(FREE_PER_MINUTE, None, rules.free_per_minute)
    return None if own is None else Rate(_PER_MINUTE, way.model.id, own)
