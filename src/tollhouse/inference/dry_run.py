"""What would become of a request: the steps of a real one, up to its first effect.

    patterns -> models -> candidates -> admission request -> what admission would say
                                                             (nothing held, counted, booked or sent)

Guardrails are not asked: they would judge a request that nobody sent. A translation that cannot say
what is asked is found out only when its endpoint is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.pricing import most
from tollhouse.inference.admission_request import (
    admission_request_of,
    allowed_candidates,
    most_output,
    output_limit,
)
from tollhouse.inference.guardrails.verdicts import named
from tollhouse.inference.types import ExcludedEndpoint
from tollhouse.kernel.errors import Forbidden, NotFound, TollhouseError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest
    from tollhouse.inference.call import Call
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.generation import Services
    from tollhouse.inference.ports import AdmissionForecast
    from tollhouse.inference.routing import Candidate
    from tollhouse.inference.token_estimate import Demand

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
    """The most that it may cost here."""


@dataclass(frozen=True, slots=True)
class AdmissionEstimate:
    """What a request would hold, and every limit that it meets."""

    request: AdmissionRequest
    preview: AdmissionPreview


@dataclass(frozen=True, slots=True)
class RequestEstimate:
    """What would become of a request."""

    model: str
    demand: Demand
    candidates: Sequence[EstimatedCandidate]
    """In the order in which they would be tried."""
    excluded: Sequence[ExcludedEndpoint]
    admission: AdmissionEstimate | None
    """None where nobody may serve it."""
    refusal: TollhouseError | None
    """What it would get in place of a reply, as far as that is known before a provider is asked."""
    output_limit: int | None
    """The limit of each answer's output that it would be asked with, since no more can be paid for;
    None where it would be asked as it is."""
    guardrails: Sequence[str]
    """Those that would judge it, and were not asked."""


class DryRun:
    """Follows requests as far as nothing happens."""

    def __init__(self, catalog: Catalog, services: Services, forecast: AdmissionForecast) -> None:
        """Take what real requests use, and what looks ahead at admission."""
        self._catalog = catalog
        self._services = services
        self._forecast = forecast

    async def estimate(self, call: Call, flagged: Forbidden | None) -> RequestEstimate:
        """Return what would become of a request.

        Args:
            call: The request.
            flagged: What the caller's policies say of its words, if they do not let them pass.

        Raises:
            NotFound: No such model.
            Unavailable: The account cannot be read.
        """
        refusal: TollhouseError | None = flagged
        candidates: Sequence[Candidate] = ()
        excluded: list[ExcludedEndpoint] = []
        models = self._catalog.wanted(call.request.model, call.preferences.models)
        try:
            candidates = self._services.candidates(call, models, excluded.append)
        except (NotFound, Forbidden, Unavailable) as unserved:
            refusal = refusal or unserved
        admission = await self._admission_estimate(call, candidates) if candidates else None
        if admission is not None:
            candidates = _open(admission, candidates, excluded)
            refusal = refusal or admission.preview.error
        wanted, now = call.demand(), self._services.clock.monotonic()
        limit = _output_limit(admission, wanted, candidates)
        return RequestEstimate(
            model=models[0].id,
            demand=wanted,
            candidates=[self._candidate(candidate, wanted, limit, now) for candidate in candidates],
            output_limit=limit,
            excluded=excluded,
            admission=admission,
            refusal=refusal,
            guardrails=named(call.subject.policies),
        )

    async def _admission_estimate(
        self, call: Call, candidates: Sequence[Candidate]
    ) -> AdmissionEstimate:
        request = admission_request_of(_NO_GENERATION, call, candidates, self._services.rules)
        return AdmissionEstimate(request, await self._forecast.preview(request))

    def _candidate(
        self, candidate: Candidate, wanted: Demand, limit: int | None, now: float
    ) -> EstimatedCandidate:
        endpoint = candidate.endpoint
        output = most_output(wanted, candidate) if limit is None else limit * wanted.choices
        return EstimatedCandidate(
            candidate,
            is_cooling_down=self._services.health.is_cooling(endpoint, now),
            output_tokens=output,
            cost_nano=most(wanted.input_tokens, output, wanted.images, endpoint.price),
        )


def _output_limit(
    admission: AdmissionEstimate | None, wanted: Demand, candidates: Sequence[Candidate]
) -> int | None:
    if admission is None or admission.preview.error is not None:
        return None
    spendable = admission.preview.admitted.spendable_nano
    return None if spendable is None else output_limit(wanted, candidates, spendable)


def _open(
    admission: AdmissionEstimate, candidates: Sequence[Candidate], excluded: list[ExcludedEndpoint]
) -> Sequence[Candidate]:
    """Return the candidates that admission leaves; where it refuses for good, all of them."""
    request, preview = admission.request, admission.preview
    left = allowed_candidates(request, candidates, may_use_free=preview.admitted.may_use_free)
    if not left:
        return candidates
    excluded += [
        ExcludedEndpoint(candidate.model, candidate.endpoint, "free_limits")
        for candidate in candidates
        if candidate not in left
    ]
    return left
