"""What would become of a request: the way of a real one, up to its first effect.

    patterns -> models -> ways -> claim -> what admission would say
                                           (nothing held, counted, booked or sent)

Guardrails are not asked: they would judge a request that nobody sent. A translation that cannot say
what is asked is found out only when its endpoint is tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.accounting.pricing import most
from tollhouse.inference.claims import claim_of, most_output, open_to, output_limit
from tollhouse.inference.guardrails.verdicts import named
from tollhouse.inference.types import LeftOut
from tollhouse.kernel.errors import Forbidden, NotFound, TollhouseError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest
    from tollhouse.inference.call import Call
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.generation import Services
    from tollhouse.inference.ports import Forecast
    from tollhouse.inference.routing import Way
    from tollhouse.inference.weights import Demand

_NOBODY = ""
"""The id of a generation that will never be."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An endpoint that would be tried."""

    way: Way
    cooling: bool
    """Whether it failed of late."""
    output_tokens: int
    """The most that it may write: the request's limit, or else the model's."""
    cost_nano: int
    """The most that it may cost here."""


@dataclass(frozen=True, slots=True)
class Admissibility:
    """What a request would hold, and every limit that it meets."""

    claim: AdmissionRequest
    preview: AdmissionPreview


@dataclass(frozen=True, slots=True)
class Estimate:
    """What would become of a request."""

    model: str
    demand: Demand
    candidates: Sequence[Candidate]
    """In the order in which they would be tried."""
    left_out: Sequence[LeftOut]
    admissibility: Admissibility | None
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

    def __init__(self, catalog: Catalog, services: Services, forecast: Forecast) -> None:
        """Take what real requests use, and what looks ahead at admission."""
        self._catalog = catalog
        self._services = services
        self._forecast = forecast

    async def estimate(self, call: Call, flagged: Forbidden | None) -> Estimate:
        """Return what would become of a request.

        Args:
            call: The request.
            flagged: What the caller's policies say of its words, if they do not let them pass.

        Raises:
            NotFound: No such model.
            Unavailable: The account cannot be read.
        """
        refusal: TollhouseError | None = flagged
        ways: Sequence[Way] = ()
        left_out: list[LeftOut] = []
        models = self._catalog.wanted(call.request.model, call.preferences.models)
        try:
            ways = self._services.ways(call, models, left_out.append)
        except (NotFound, Forbidden, Unavailable) as unserved:
            refusal = refusal or unserved
        admissibility = await self._admissibility(call, ways) if ways else None
        if admissibility is not None:
            ways = _open(admissibility, ways, left_out)
            refusal = refusal or admissibility.preview.error
        wanted, now = call.demand(), self._services.clock.monotonic()
        limit = _output_limit(admissibility, wanted, ways)
        return Estimate(
            model=models[0].id,
            demand=wanted,
            candidates=[self._candidate(way, wanted, limit, now) for way in ways],
            output_limit=limit,
            left_out=left_out,
            admissibility=admissibility,
            refusal=refusal,
            guardrails=named(call.subject.policies),
        )

    async def _admissibility(self, call: Call, ways: Sequence[Way]) -> Admissibility:
        claim = claim_of(_NOBODY, call, ways, self._services.rules)
        return Admissibility(claim, await self._forecast.preview(claim))

    def _candidate(self, way: Way, wanted: Demand, limit: int | None, now: float) -> Candidate:
        endpoint = way.endpoint
        output = most_output(wanted, way) if limit is None else limit * wanted.answers
        return Candidate(
            way,
            cooling=self._services.health.is_cooling(endpoint, now),
            output_tokens=output,
            cost_nano=most(wanted.input_tokens, output, wanted.images, endpoint.price),
        )


def _output_limit(
    admissibility: Admissibility | None, wanted: Demand, ways: Sequence[Way]
) -> int | None:
    if admissibility is None or admissibility.preview.error is not None:
        return None
    spendable = admissibility.preview.admitted.spendable_nano
    return None if spendable is None else output_limit(wanted, ways, spendable)


def _open(
    admissibility: Admissibility, ways: Sequence[Way], left_out: list[LeftOut]
) -> Sequence[Way]:
    """Return the ways that admission leaves; where it refuses for good, all of them."""
    claim, preview = admissibility.claim, admissibility.preview
    left = open_to(claim, ways, may_use_free=preview.admitted.may_use_free)
    if not left:
        return ways
    left_out += [LeftOut(way.model, way.endpoint, "free_limits") for way in ways if way not in left]
    return left
