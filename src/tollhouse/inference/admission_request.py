"""What a request asks of admission: the most that it can cost at any of its candidates.

Pure. The dearest candidate counts, since a fallback may be dearer than the first choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import FREE_PER_MINUTE, AdmissionRequest, Rate
from tollhouse.accounting.pricing import affordable, estimate, most
from tollhouse.inference.formats.messages.wire import DEFAULT_MAX_TOKENS
from tollhouse.inference.formats.tokens import MAX_TOKENS
from tollhouse.inference.token_estimate import LEAST_OUTPUT, limit_of_each_choice
from tollhouse.inference.types import Dialect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.rules import AccountingRules
    from tollhouse.inference.call import Call
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.token_estimate import Demand

_PER_MINUTE = "requests-per-min"


def admission_request_of(
    generation_id: str, call: Call, candidates: Sequence[Candidate], rules: AccountingRules
) -> AdmissionRequest:
    """Return what a request asks of admission.

    Args:
        generation_id: The reply's id.
        call: The request.
        candidates: How it may be served, at least one.
        rules: The operator's numbers.
    """
    subject = call.subject
    request = AdmissionRequest(
        generation_id, subject.account_id, subject.key_hash, call.received_at
    )
    request.payer_hash = subject.payer_hash
    # A free model behind a paid one counts, too: the paid one may be there to be refused.
    request.rate = _rate(candidates[0], rules)
    if request.rate is None:
        request.rate = next(
            (_rate(candidate, rules) for candidate in candidates if uses_free_limits(candidate)),
            None,
        )
    wanted: Demand | None = None
    limited = 0
    for candidate in candidates:
        limited += uses_free_limits(candidate)
        if not candidate.endpoint.price.is_free:
            wanted = call.demand() if wanted is None else wanted
            _raise_to(request, wanted, candidate, rules)
    request.free, request.only_free = limited > 0, limited == len(candidates)
    if wanted is not None:
        request.paid = True
        request.open_ended = wanted.output_tokens is None
    return request


def uses_free_limits(candidate: Candidate) -> bool:
    """Tell whether a candidate counts towards the limits of free models."""
    return candidate.model.is_free_variant and candidate.endpoint.free_limits


def allowed_candidates(
    request: AdmissionRequest, candidates: Sequence[Candidate], *, may_use_free: bool
) -> Sequence[Candidate]:
    """Return those of a request's candidates that the limits of free models leave."""
    if request.free and not may_use_free:
        return [candidate for candidate in candidates if not uses_free_limits(candidate)]
    return candidates


def most_output(wanted: Demand, candidate: Candidate) -> int:
    """Return the most tokens that a request's answers may take together, at one candidate."""
    if wanted.output_tokens is not None:
        return wanted.output_tokens
    return _own_limit(wanted, candidate) * wanted.choices


def output_limit(wanted: Demand, candidates: Sequence[Candidate], spendable_nano: int) -> int:
    """Return the limit of output, for each answer, with which a request costs no more than it may.

    It pays for the dearest of the candidates, and no model refuses it for its size. Where not even
    a token is paid for, it is one token: no provider takes less.

    Args:
        wanted: What the request asks for; it sets no limit.
        candidates: How it may be served, at least one.
        spendable_nano: What it may cost.
    """
    room = min(
        min(
            candidate.endpoint.max_completion_tokens
            or candidate.model.max_completion_tokens
            or MAX_TOKENS,
            max(1, candidate.model.context_length - wanted.input_tokens),
        )
        for candidate in candidates
    )
    paid = (
        affordable(spendable_nano, wanted.input_tokens, wanted.images, candidate.endpoint.price)
        for candidate in candidates
    )
    tokens = min((tokens for tokens in paid if tokens is not None), default=MAX_TOKENS)
    return min(room, limit_of_each_choice(wanted, tokens))


def _raise_to(
    request: AdmissionRequest, wanted: Demand, candidate: Candidate, rules: AccountingRules
) -> None:
    """Raise the amounts to what the request may cost at one more candidate."""
    price, tokens, images = candidate.endpoint.price, wanted.input_tokens, wanted.images
    held = estimate(tokens, wanted.output_tokens, price, rules.request_cap_nano)
    request.estimate_nano = max(request.estimate_nano, held)
    dearest = most(tokens, most_output(wanted, candidate), images, price)
    request.most_nano = max(request.most_nano, dearest)
    if wanted.output_tokens is None:
        least = most(tokens, _least_output(wanted, candidate), images, price)
        request.least_nano = max(request.least_nano, least)


def _own_limit(wanted: Demand, candidate: Candidate) -> int:
    """Return how much an answer takes at most where the request sets no limit."""
    known = candidate.endpoint.max_completion_tokens or candidate.model.max_completion_tokens
    if known is None and candidate.adapter.dialect is Dialect.MESSAGES:
        known = DEFAULT_MAX_TOKENS + wanted.reasoning_tokens
    return known or candidate.model.context_length


def _least_output(wanted: Demand, candidate: Candidate) -> int:
    """Return how many tokens a request must be able to pay for beside its prompt.

    Thoughts take their budget, and OpenAI's responses have a least limit; others may be asked for
    a single token.
    """
    each = LEAST_OUTPUT if candidate.adapter.dialect is Dialect.RESPONSES else 0
    return (each + wanted.reasoning_tokens) * wanted.choices


def _rate(candidate: Candidate, rules: AccountingRules) -> Rate | None:
    own = candidate.model.requests_per_minute
    if uses_free_limits(candidate):
        if own is not None:
            return Rate(FREE_PER_MINUTE, candidate.model.id, own)
        return Rate(FREE_PER_MINUTE, None, rules.free_per_minute)
    return None if own is None else Rate(_PER_MINUTE, candidate.model.id, own)
