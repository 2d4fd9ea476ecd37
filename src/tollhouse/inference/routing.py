"""Which endpoints a request tries, in which order. Pure.

ways(models, relays, preferences, spoken, cooling) -> Way, Way, ...   first to last
    left_out(endpoint, why)                        each time that one falls out
still_open(error, way, rest)                       -> those that may be tried after a failure
last_word(errors)                                  -> the caller's answer when all failed
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from tollhouse.inference import access
from tollhouse.inference.preferences import NO_PREFERENCES
from tollhouse.inference.types import LeftOut
from tollhouse.kernel.errors import (
    Invalid,
    NotFound,
    ProviderFailure,
    ProviderOverloaded,
    ProviderRateLimited,
    ProviderRefused,
    Unroutable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from tollhouse.identity.types import AccessPolicy
    from tollhouse.inference.formats.adapter import FormatAdapter
    from tollhouse.inference.types import Ceiling, Dialect, Endpoint, Model, Preferences, Reason

_HINTED: Final = (ProviderRateLimited, ProviderOverloaded)
"""The errors (429 and 503) whose answer may say when to try again."""
_MILLION: Final = Decimal(1_000_000)


@dataclass(frozen=True, slots=True)
class Way:
    """One endpoint, and how it is asked."""

    model: Model
    endpoint: Endpoint
    relay: FormatAdapter


def ways(  # noqa: PLR0913 - each decides in a way of its own
    models: Sequence[Model],
    relays: Sequence[FormatAdapter],
    preferences: Preferences,
    *,
    spoken: Callable[[Endpoint], Collection[Dialect]],
    cooling: Callable[[Endpoint], bool],
    policies: Sequence[AccessPolicy] = (),
    left_out: Callable[[LeftOut], None] = lambda _: None,
) -> Sequence[Way]:
    """Return the ways in which a request can be served, first to last.

    A model's endpoints come in the catalogue's order, those that cool down after the others; the
    request's `order` comes before both.

    Args:
        models: The model that was asked for, and those that may stand in for it.
        relays: How the request can be asked, best first.
        preferences: What the request says of routing.
        spoken: What an endpoint's provider speaks.
        cooling: Whether an endpoint failed of late.
        policies: What the caller's requests may reach.
        left_out: Called with each endpoint of the models that is not among the ways.

    Raises:
        NotFound: None of the models answers requests of this kind at all.
        Forbidden: Some do, but the policies allow none of them.
        Unroutable: Some do, but none as the request wants it.
    """
    possible = [way for model in models for way in _possible(model, relays, spoken, left_out)]
    if not possible:
        raise NotFound(f"{models[0].id} does not answer requests of this kind.")
    if policies:
        possible = access.allowed(
            policies,
            possible,
            lambda way: (way.model.id, way.endpoint),
            lambda way, why: left_out(LeftOut(way.model, way.endpoint, "policy", tuple(why))),
        )
    if len(possible) == 1 and preferences is NO_PREFERENCES:
        return possible
    chosen: list[Way] = []
    for model in models:
        own = [way for way in possible if way.model is model]
        meeting = _meeting(own, preferences, left_out)
        ranked = sorted(meeting, key=lambda way: rank(way.endpoint, preferences, cooling))
        tried = len(ranked) if preferences.allow_fallbacks else 1
        chosen += ranked[:tried]
        for way in ranked[tried:]:
            left_out(LeftOut(way.model, way.endpoint, "allow_fallbacks"))
    if not chosen:
        message = f"No provider of {models[0].id} meets the request's routing requirements."
        raise Unroutable(message)
    return chosen


def _possible(
    model: Model,
    relays: Sequence[FormatAdapter],
    spoken: Callable[[Endpoint], Collection[Dialect]],
    left_out: Callable[[LeftOut], None],
) -> Iterable[Way]:
    for endpoint in model.endpoints:
        dialects = endpoint.dialects or spoken(endpoint)
        relay = next((each for each in relays if each.dialect in dialects), None)
        if relay is not None:
            yield Way(model, endpoint, relay)
        else:
            left_out(LeftOut(model, endpoint, "not_spoken"))


def _meeting(
    ways_: Sequence[Way], wanted: Preferences, left_out: Callable[[LeftOut], None]
) -> Iterable[Way]:
    for way in ways_:
        reason = _objection(way, wanted)
        if reason is None:
            yield way
        else:
            left_out(LeftOut(way.model, way.endpoint, reason))


def _objection(way: Way, wanted: Preferences) -> Reason | None:
    """Return the preference that speaks against a way; None where none does."""
    found = objection(way.endpoint, wanted)
    if found is None and wanted.require_parameters and _loses(way):
        found = "require_parameters"
    return found


def objection(endpoint: Endpoint, wanted: Preferences) -> Reason | None:
    """Return the preference that speaks against an endpoint, whatever it is asked; None if none."""
    found: Reason | None = None
    if wanted.only is not None and not is_named(endpoint, wanted.only):
        found = "only"
    elif is_named(endpoint, wanted.ignore):
        found = "ignore"
    elif wanted.unvouched:
        found = "unvouched"
    elif wanted.deny_data_collection and endpoint.keeps_data:
        found = "data_collection"
    elif wanted.ceiling is not None and not _within(endpoint, wanted.ceiling):
        found = "max_price"
    return found


def _loses(way: Way) -> bool:
    try:
        return bool(way.relay.unsupported_parameters(way.endpoint))
    except Invalid:
        # It cannot even say what is asked.
        return True


def is_named(endpoint: Endpoint, names: Collection[str]) -> bool:
    """Tell whether one of some names means an endpoint's provider."""
    return any(_is(endpoint, name) for name in names)


def _is(endpoint: Endpoint, name: str) -> bool:
    """Tell whether a name means an endpoint's provider: its slug, a stem of it, or its name.

    Source: the public gateway's provider routing: `x` matches `x/region`, not the reverse.
    """
    slug = endpoint.provider
    wanted = name.lower()
    return wanted in {slug, endpoint.provider_name.lower()} or slug.startswith(f"{wanted}/")


def _within(endpoint: Endpoint, ceiling: Ceiling) -> bool:
    rates = endpoint.price.rates
    bounds = (
        (rates.prompt * _MILLION, ceiling.prompt),
        (rates.completion * _MILLION, ceiling.completion),
        (rates.request, ceiling.request),
        (rates.image, ceiling.image),
    )
    return all(most is None or price <= most for price, most in bounds)


def rank(
    endpoint: Endpoint, wanted: Preferences, cooling: Callable[[Endpoint], bool] = lambda _: False
) -> tuple[int, bool, Decimal]:
    """Return what orders a model's endpoints: the lowest is tried first.

    Args:
        endpoint: One of them.
        wanted: What the request says of routing.
        cooling: Whether an endpoint failed of late.
    """
    places = (place for place, name in enumerate(wanted.order) if _is(endpoint, name))
    rates = endpoint.price.rates
    price = rates.prompt + rates.completion if wanted.by_price else Decimal(0)
    place = next(places, len(wanted.order))
    return place, place == len(wanted.order) and cooling(endpoint), price


def still_open(error: ProviderFailure, way: Way, rest: Sequence[Way]) -> Sequence[Way]:
    """Return the ways that may be tried after one failed.

    None where the work may have been done already, unless that costs nothing. A provider that says
    that the request itself is wrong speaks for its model: another model may take it.

    Args:
        error: How it failed, before the first byte of its reply.
        way: The one that failed.
        rest: Those that would be next.
    """
    if error.ambiguous and not way.endpoint.idempotent:
        return ()
    if isinstance(error, ProviderRefused):
        return [each for each in rest if each.model is not way.model]
    return rest


def last_word(errors: Sequence[ProviderFailure]) -> ProviderFailure:
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
