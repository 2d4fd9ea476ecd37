"""Which endpoints a request tries, in which order. Pure.

find_candidates(models, adapters, preferences, ...) -> Candidate, Candidate, ...  first to last
    on_excluded(endpoint, reason)                   called for each endpoint that is left out
remaining(error, candidate, rest)                   -> those that may be tried after a failure
final_error(errors)                                 -> the caller's error when all failed
Health                                              which endpoints failed of late
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tollhouse.inference import policy_filter
from tollhouse.inference.types import NO_PREFERENCES, ExcludedEndpoint
from tollhouse.kernel.errors import (
    Invalid,
    NotFound,
    ProviderFailure,
    ProviderModerated,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    Unroutable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tollhouse.identity.types import AccessPolicy
    from tollhouse.inference.formats.adapter import FormatAdapter
    from tollhouse.inference.formats.registry import Adapters
    from tollhouse.inference.types import Dialect, Endpoint, MaxPrice, Model, Preferences, Reason

_HINTED: Final = (ProviderRateLimited, ProviderOverloaded)
"""The errors (429 and 503) whose answer may say when to try again."""
_MILLION: Final = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One endpoint, and how it is asked."""

    model: Model
    endpoint: Endpoint
    adapter: FormatAdapter


def find_candidates(  # noqa: PLR0913 - each decides something of its own
    models: Sequence[Model],
    adapters: Adapters,
    preferences: Preferences,
    *,
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
    cooling: Callable[[Endpoint], bool],
    policies: Sequence[AccessPolicy] = (),
    on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
) -> Sequence[Candidate]:
    """Return the endpoints that can serve a request, and how, first to last.

    A model's endpoints come in the catalogue's order, those that cool down after the others; the
    request's `order` comes before both. The models are the one that was asked for, and those that
    may stand in for it; the adapters come best first. `dialects_of` returns what an endpoint's
    provider speaks, `cooling` tells whether an endpoint failed of late, and `on_excluded` is called
    with each endpoint of the models that is not a candidate.

    Raises:
        NotFound: None of the models answers requests of this kind at all.
        Forbidden: Some do, but the policies allow none of them.
        Unroutable: Some do, but none as the request wants it.
    """
    possible = [
        candidate
        for model in models
        for candidate in _possible(model, adapters, dialects_of, on_excluded)
    ]
    if not possible:
        raise NotFound(f"{models[0].id} does not answer requests of this kind.")
    if policies:
        possible = policy_filter.allowed(
            policies,
            possible,
            lambda candidate: (candidate.model.id, candidate.endpoint),
            lambda candidate, why: on_excluded(
                ExcludedEndpoint(candidate.model, candidate.endpoint, "policy", tuple(why))
            ),
        )
    if len(possible) == 1 and preferences is NO_PREFERENCES:
        return possible
    chosen: list[Candidate] = []
    for model in models:
        own = (candidate for candidate in possible if candidate.model is model)
        ranked = sorted(
            (candidate for candidate in own if _meets(candidate, preferences, on_excluded)),
            key=lambda candidate: rank(candidate.endpoint, preferences, cooling),
        )
        tried = len(ranked) if preferences.allow_fallbacks else 1
        chosen += ranked[:tried]
        for candidate in ranked[tried:]:
            on_excluded(ExcludedEndpoint(candidate.model, candidate.endpoint, "allow_fallbacks"))
    if not chosen:
        raise Unroutable(f"No provider of {models[0].id} meets the request's routing requirements.")
    return chosen


def _possible(
    model: Model,
    adapters: Adapters,
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
    on_excluded: Callable[[ExcludedEndpoint], None],
) -> Iterable[Candidate]:
    for endpoint in model.endpoints:
        dialects = endpoint.dialects or dialects_of(endpoint)
        dialect = next((each for each in adapters if each in dialects), None)
        if dialect is not None:
            yield Candidate(model, endpoint, adapters[dialect])
        else:
            on_excluded(ExcludedEndpoint(model, endpoint, "not_spoken"))


def _meets(
    candidate: Candidate, wanted: Preferences, on_excluded: Callable[[ExcludedEndpoint], None]
) -> bool:
    reason = objection(candidate.endpoint, wanted)
    if reason is None and wanted.require_parameters and _loses_parameters(candidate):
        reason = "require_parameters"
    if reason is not None:
        on_excluded(ExcludedEndpoint(candidate.model, candidate.endpoint, reason))
    return reason is None


def objection(endpoint: Endpoint, wanted: Preferences) -> Reason | None:
    """Return the preference that speaks against an endpoint, whatever it is asked; None if none."""
    if wanted.only is not None and not _is_named(endpoint, wanted.only):
        return "only"
    if _is_named(endpoint, wanted.ignore):
        return "ignore"
    if wanted.unsupported_guarantees:
        return "unvouched"
    if wanted.deny_data_collection and endpoint.keeps_data:
        return "data_collection"
    exceeds = wanted.max_price is not None and not _within(endpoint, wanted.max_price)
    return "max_price" if exceeds else None


def _loses_parameters(candidate: Candidate) -> bool:
    try:
        return bool(candidate.adapter.unsupported_parameters(candidate.endpoint))
    except Invalid:
        # It cannot even say what is asked.
        return True


def _is_named(endpoint: Endpoint, names: Collection[str]) -> bool:
    return any(_is(endpoint, name) for name in names)


def _is(endpoint: Endpoint, name: str) -> bool:
    """Tell whether a name means an endpoint's provider: its slug, a stem of it, or its name.

    Source: the public gateway's provider routing: `x` matches `x/region`, not the reverse.
    """
    slug, wanted = endpoint.provider, name.lower()
    return wanted in {slug, endpoint.provider_name.lower()} or slug.startswith(f"{wanted}/")


def _within(endpoint: Endpoint, max_price: MaxPrice) -> bool:
    rates = endpoint.price.rates
    bounds = (
        (rates.prompt * _MILLION, max_price.prompt),
        (rates.completion * _MILLION, max_price.completion),
        (rates.request, max_price.request),
        (rates.image, max_price.image),
    )
    return all(most is None or price <= most for price, most in bounds)


def rank(
    endpoint: Endpoint, wanted: Preferences, cooling: Callable[[Endpoint], bool] = lambda _: False
) -> tuple[int, bool, Decimal]:
    """Return what orders a model's endpoints: the lowest is tried first."""
    places = (place for place, name in enumerate(wanted.order) if _is(endpoint, name))
    rates = endpoint.price.rates
    price = rates.prompt + rates.completion if wanted.by_price else Decimal(0)
    place = next(places, len(wanted.order))
    return place, place == len(wanted.order) and cooling(endpoint), price


def remaining(
    error: ProviderFailure, candidate: Candidate, rest: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Return the candidates that may be tried after one failed.

    It failed before the first byte of its reply. None may be tried where the work may have been
    done already, unless that costs nothing. A provider that says that the request itself is wrong
    speaks for its model: another model may take it.
    """
    if error.ambiguous and not candidate.endpoint.idempotent:
        return ()
    if isinstance(error, ProviderRefused):
        return [each for each in rest if each.model is not candidate.model]
    return rest


def final_error(errors: Sequence[ProviderFailure]) -> ProviderFailure:
    """Return the error that the caller gets after every endpoint failed: the last one.

    Its `retry_after` is the smallest hint if every provider gave one, and none otherwise: a
    partial hint would promise what a silent provider never said. It is ambiguous if any was: an
    earlier endpoint may have done the work.
    """
    error = errors[-1]
    error.ambiguous = any(each.ambiguous for each in errors)
    hints = [each.retry_after for each in errors if each.retry_after is not None]
    hinted = isinstance(error, _HINTED) and len(hints) == len(errors)
    error.retry_after = min(hints) if hinted else None
    return error


COOL_DOWN_SECONDS: Final = 30.0
"""Source: the public gateway's reference of provider routing: outages of the last 30 seconds."""
_LONGEST_SECONDS: Final = 300.0
"""What a provider's own hint may ask for."""


class Health:
    """Endpoints that failed of late, and are tried after the others while they cool down.

    One process's own memory; nothing is asked for its sake.
    """

    def __init__(self, cool_down_seconds: float = COOL_DOWN_SECONDS) -> None:
        self._cool_down_seconds = cool_down_seconds
        self._until: dict[tuple[str, str], float] = {}

    def failed(self, endpoint: Endpoint, error: ProviderFailure, now: float) -> None:
        """Note a failure, unless it is the request's own fault.

        A rate limit's own hint counts if it is longer than the usual time. `now` is in monotonic
        seconds.
        """
        if isinstance(error, (ProviderRefused, ProviderModerated)):
            return
        hint = min(float(error.retry_after or 0), _LONGEST_SECONDS)
        seconds = max(self._cool_down_seconds, hint)
        self._until[endpoint.provider, endpoint.model] = now + seconds

    def answered(self, endpoint: Endpoint) -> None:
        """Note that an endpoint accepted a request."""
        if self._until:
            self._until.pop((endpoint.provider, endpoint.model), None)

    def is_cooling(self, endpoint: Endpoint, now: float) -> bool:
        """Tell whether an endpoint failed of late."""
        if not self._until:
            return False
        return self._until.get((endpoint.provider, endpoint.model), 0.0) > now
