"""What would become of a request: the steps of a real one, up to its first effect.

    patterns -> models -> candidates -> admission request -> what admission would say
                                                             (nothing held, counted, booked or sent)

Guardrails are not asked: they would judge a request that was not sent. A translation that cannot
say what is asked is found out only when its endpoint is tried. On the wire, amounts are credits,
and prices USD (= credits) as texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tollhouse.accounting.admission.types import limit_source
from tollhouse.accounting.pricing import most_with_own_key
from tollhouse.inference.admission import (
    admission_request_of,
    allowed_candidates,
    demand_of,
    most_cost,
    most_output,
    output_limits,
)
from tollhouse.inference.guardrails import named
from tollhouse.inference.price_texts import price_texts
from tollhouse.inference.types import ExcludedEndpoint
from tollhouse.kernel.clock import iso_utc
from tollhouse.kernel.errors import Forbidden, NotFound, TollhouseError, Unavailable, error_object
from tollhouse.kernel.money import nano_to_float

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from fractions import Fraction

    from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.dependencies import PipelineDependencies
    from tollhouse.inference.request import InferenceRequest
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.types import Demand, Endpoint, Model

_NO_GENERATION = ""
"""The id of a generation that will never be."""


@dataclass(frozen=True, slots=True)
class EstimatedCandidate:
    """An endpoint that would be tried."""

    candidate: Candidate
    is_cooling_down: bool
    """Whether it failed of late."""
    output_tokens: int
    """The most that it may write: the request's limit, or else the model's."""
    cost_nano: int
    """The most that it may cost here: with an own key, the fee."""
    upstream_nano: int | None
    """The most that the provider may take from the customer with an own key; else None."""


@dataclass(frozen=True, slots=True)
class RequestEstimate:
    """What would become of a request."""

    model: str
    demand: Demand
    candidates: Sequence[EstimatedCandidate]
    """In the order in which they would be tried."""
    excluded: Sequence[ExcludedEndpoint]
    admission: tuple[AdmissionRequest, AdmissionPreview] | None
    """What it would hold, and every limit that it meets; None where no endpoint may serve it."""
    refusal: TollhouseError | None
    """What it would get in place of a reply, as far as that is known before a provider is asked."""
    output_limit: int | None
    """The limit of each answer's output that it would be asked with, since no more can be paid for;
    None where it would be asked as it is."""
    guardrails: Sequence[str]
    """Those that would judge it, and were not asked."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """Follows requests as far as nothing happens."""

    _catalog: Catalog
    _services: PipelineDependencies

    async def estimate(
        self, request: InferenceRequest, flagged: Forbidden | None
    ) -> RequestEstimate:
        """Return what would become of a parsed request, which policies may have `flagged`.

        Raises:
            NotFound: No such model.
            Unavailable: The account cannot be read.
        """
        refusal: TollhouseError | None = flagged
        candidates: Sequence[Candidate] = ()
        excluded: list[ExcludedEndpoint] = []
        models = self._catalog.wanted(request.parsed.model, request.preferences.models)
        try:
            candidates = await self._services.candidates(request, models, excluded.append)
        except (NotFound, Forbidden, Unavailable) as unserved:
            refusal = refusal or unserved
        demand = demand_of(request)
        admission: tuple[AdmissionRequest, AdmissionPreview] | None = None
        limits: tuple[int | None, int | None] = (None, None)
        fee = self._services.rules.own_fee
        if candidates:
            wanted = admission_request_of(_NO_GENERATION, request, candidates, self._services.rules)
            preview = await self._services.admission.preview(wanted)
            admission, admitted, fee = (wanted, preview), preview.admitted, preview.own_fee
            left = allowed_candidates(wanted, candidates, may_use_free=admitted.may_use_free)
            if left:  # where admission refuses for good, all of them are shown
                excluded += [
                    ExcludedEndpoint(candidate.model, candidate.endpoint, "free_limits")
                    for candidate in candidates
                    if candidate not in left
                ]
                candidates = left
            refusal = refusal or preview.error
            if preview.error is None and admitted.is_limited:
                limits = output_limits(demand, candidates, admitted)
        now = self._services.clock.monotonic()
        return RequestEstimate(
            model=models[0].id,
            demand=demand,
            candidates=[
                self._candidate(each, demand, limits[each.own_key is not None], fee, now)
                for each in candidates
            ],
            output_limit=limits[candidates[0].own_key is not None] if candidates else None,
            excluded=excluded,
            admission=admission,
            refusal=refusal,
            guardrails=named(request.subject.policies),
        )

    def _candidate(
        self, candidate: Candidate, demand: Demand, limit: int | None, fee: Fraction, now: float
    ) -> EstimatedCandidate:
        endpoint, key, health = candidate.endpoint, candidate.own_key, self._services.health
        output = most_output(demand, candidate) if limit is None else limit * demand.choices
        cost = most_cost(demand, output, candidate)
        is_own = candidate.own_key is not None
        return EstimatedCandidate(
            candidate,
            is_cooling_down=health.is_cooling(endpoint, now)
            if key is None
            else health.key_cools(key, now) or health.is_out(endpoint, now),
            output_tokens=output,
            cost_nano=most_with_own_key(cost, fee) if is_own else cost,
            upstream_nano=cost if is_own else None,
        )


Shown = dict[str, Any]


def estimate_reply(estimate: RequestEstimate, prefix: str) -> Shown:
    """Return the body of an estimate, in which every `limit_source` begins with the prefix."""
    wanted, hold, limits, error = estimate.demand, None, list[Shown](), estimate.refusal
    if estimate.admission is not None:
        request, preview = estimate.admission
        limits += _limits(preview, prefix)
        hold = {
            "credits": nano_to_float(request.estimate_nano),
            "balance": nano_to_float(preview.credits_nano),
            "key_limit": nano_to_float(preview.key_nano),
            "open_ended": request.open_ended,
        }
    data = {
        "model": estimate.model,
        "tokens": {
            "input": wanted.input_tokens,
            "output": wanted.output_tokens,
            "images": wanted.images,
        },
        "endpoints": [_candidate(each) for each in estimate.candidates],
        "left_out": [
            {
                **_offer(each.model, each.endpoint),
                "reason": each.reason,
                "details": list(each.details),
            }
            for each in estimate.excluded
        ],
        "hold": hold,
        "max_tokens": estimate.output_limit,
        "limits": limits,
        "guardrails": list(estimate.guardrails),
        "refusal": None if error is None else _refusal(error),
    }
    return {"data": data}


def _offer(model: Model, endpoint: Endpoint) -> Shown:
    return {
        "model": model.id,
        "provider": endpoint.provider,
        "provider_name": endpoint.provider_name or endpoint.provider,
        "provider_model": endpoint.model,
    }


def _candidate(estimated: EstimatedCandidate) -> Shown:
    candidate = estimated.candidate
    return {
        **_offer(candidate.model, candidate.endpoint),
        "dialect": candidate.adapter.dialect.value,
        "cooling_down": estimated.is_cooling_down,
        "output_tokens": estimated.output_tokens,
        "cost_estimate": nano_to_float(estimated.cost_nano),
        "is_byok": candidate.own_key is not None,
        "upstream_cost_estimate": (
            None if estimated.upstream_nano is None else nano_to_float(estimated.upstream_nano)
        ),
        "pricing": price_texts(candidate.endpoint.price),
    }


def _limits(preview: AdmissionPreview, prefix: str) -> Iterator[Shown]:
    for rate in preview.request_limits:
        yield {
            "name": rate.bucket,
            "payer": False,
            "unit": "requests",
            "limit": rate.limit,
            "used": rate.used,
            "held": rate.held,
            "remaining": rate.remaining,
            "resets_at": _time(rate.resets_at),
            "fits": rate.remaining > 0,
        }
    for cap in preview.credit_limits:
        yield {
            "name": limit_source(cap.source, prefix),
            "payer": cap.is_payers,
            "unit": "credits",
            **cap.amounts(),
            "resets_at": _time(cap.resets_at),
            "fits": cap.source not in preview.too_small,
        }


def _time(instant: datetime | None) -> str | None:
    return None if instant is None else iso_utc(instant)


def _refusal(error: TollhouseError) -> Shown:
    shown = error_object(error)
    return {
        "status": shown["code"],
        "message": shown["message"],
        "metadata": shown.get("metadata"),
        "retry_after": error.retry_after,
    }
