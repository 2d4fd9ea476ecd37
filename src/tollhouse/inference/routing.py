"""Which endpoints a request tries, in which order. Pure.

find_candidates(models, adapters, preferences, ...) -> Candidate, Candidate, ...  first to last
    on_excluded(endpoint, reason)                   called for each endpoint that is left out
remaining(error, candidate, rest)                   -> those that may be tried after a failure
final_error(errors)                                 -> the caller's error when all failed
Health                                              which endpoints failed of late
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.inference import policy_filter
from tollhouse.inference.own_routing import OwnKeyUse, attempts, closed_providers
from tollhouse.inference.types import NO_PREFERENCES, ExcludedEndpoint
from tollhouse.kernel.errors import (
    STATUS,
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
    from collections.abc import Callable, Collection, Sequence

    from tollhouse.identity.types import AccessPolicy
    from tollhouse.inference.formats.adapter import FormatAdapter
    from tollhouse.inference.formats.registry import Adapters
    from tollhouse.inference.types import Dialect, Endpoint, MaxPrice, Model, Preferences, Reason
    from tollhouse.provider_keys.types import OwnKey

_HINTED: Final = (ProviderRateLimited, ProviderOverloaded)
"""The errors (429 and 503) whose answer may say when to try again."""
_MILLION: Final = Decimal(1_000_000)
_NO_OWN_KEYS: Final = OwnKeyUse()


class Candidate(NamedTuple):
    """One endpoint, and how it is asked."""

    model: Model
    endpoint: Endpoint
    adapter: FormatAdapter
    own_key: OwnKey | None = None
    """The customer's own key that its provider is shown; None for the gateway's."""


def find_candidates(  # noqa: PLR0913 - each decides something of its own
    models: Sequence[Model],
    adapters: Adapters,
    preferences: Preferences,
    *,
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
    cooling: Callable[[Endpoint], bool],
    policies: Sequence[AccessPolicy] = (),
    own_keys: OwnKeyUse = _NO_OWN_KEYS,
    on_excluded: Callable[[ExcludedEndpoint], None] = lambda _: None,
) -> Sequence[Candidate]:
    """Return the endpoints that can serve a request, and how, first to last.

    A model's endpoints come in the catalogue's order, those that cool down after the others; the
    request's `order` comes before both. The models are the one that was asked for, and those that
    may stand in for it; the adapters come best first. `dialects_of` returns what an endpoint's
    provider speaks, `cooling` tells whether an endpoint failed of late, and `on_excluded` is called
    with each endpoint of the models that is not a candidate. Own keys come in as `own_routing` has
    it: an endpoint is a candidate for each of them.

    Raises:
        NotFound: None of the models answers requests of this kind at all.
        Forbidden: Some do, but the policies allow none of them.
        Unroutable: Some do, but none as the request wants it.
    """
    possible = _possible(models, adapters, dialects_of, on_excluded)
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
    if len(possible) == 1 and preferences is NO_PREFERENCES and not own_keys:
        return possible
    chosen: list[Candidate] = []
    for model in models:
        own = (candidate for candidate in possible if candidate.model is model)
        wanted = [each for each in own if _meets(each, preferences, own_keys, on_excluded)]
        ranked = _ranked(wanted, preferences, cooling)
        if own_keys:
            with_keys = _ranked(wanted, preferences, own_keys.is_out)
            ranked = _with_own_keys(model, ranked, with_keys, preferences, own_keys, on_excluded)
        if not preferences.allow_fallbacks:
            # Further keys of the first endpoint are no other provider.
            for candidate in ranked:
                if candidate.endpoint is not ranked[0].endpoint and candidate.own_key is None:
                    on_excluded(ExcludedEndpoint(model, candidate.endpoint, "allow_fallbacks"))
            ranked = [each for each in ranked if each.endpoint is ranked[0].endpoint]
        chosen += ranked
    if not chosen:
        raise Unroutable(f"No provider of {models[0].id} meets the request's routing requirements.")
    return chosen


def _possible(
    models: Sequence[Model],
    adapters: Adapters,
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
    on_excluded: Callable[[ExcludedEndpoint], None],
) -> list[Candidate]:
    found: list[Candidate] = []
    for model in models:
        for endpoint in model.endpoints:
            dialects = endpoint.dialects or dialects_of(endpoint)
            for dialect in adapters:
                if dialect in dialects:
                    found.append(Candidate(model, endpoint, adapters[dialect]))
                    break
            else:
                on_excluded(ExcludedEndpoint(model, endpoint, "not_spoken"))
    return found


def _ranked(
    candidates: Sequence[Candidate], wanted: Preferences, cooling: Callable[[Endpoint], bool]
) -> list[Candidate]:
    return sorted(candidates, key=lambda each: rank(each.endpoint, wanted, cooling))


def _with_own_keys(  # noqa: PLR0913, PLR0917 - each decides something of its own
    model: Model,
    ranked: Sequence[Candidate],
    with_keys: Sequence[Candidate],
    wanted: Preferences,
    use: OwnKeyUse,
    on_excluded: Callable[[ExcludedEndpoint], None],
) -> list[Candidate]:
    by_endpoint = {id(each.endpoint): each for each in ranked}
    for provider in closed_providers(model, use.keys):
        for each in ranked:
            if each.endpoint.provider == provider:
                on_excluded(ExcludedEndpoint(model, each.endpoint, "own_keys"))

    def admits(_: Endpoint, key: OwnKey | None) -> bool:
        return not wanted.zdr or promises_zdr(key)

    shared, own = ([each.endpoint for each in some] for some in (ranked, with_keys))
    found = attempts(model, shared, own, use, admits)
    return [by_endpoint[id(endpoint)]._replace(own_key=key) for endpoint, key in found]


def promises_zdr(key: OwnKey | None) -> bool:
    """Tell whether an own key's provider keeps nothing, by its owner's word."""
    return key is not None and key.rules.declared_zdr is True


def _meets(
    candidate: Candidate,
    wanted: Preferences,
    use: OwnKeyUse,
    on_excluded: Callable[[ExcludedEndpoint], None],
) -> bool:
    vouched = wanted.zdr and any(map(promises_zdr, use.keys))
    reason = objection(candidate.endpoint, replace(wanted, zdr=False) if vouched else wanted)
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
    if wanted.unsupported_guarantees or wanted.zdr:
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

    A key that a provider refuses or limits cools down by itself, whether it is the gateway's or a
    customer's own: the others are asked as before. One process's own memory; nothing is asked for
    its sake.
    """

    def __init__(self, cool_down_seconds: float = COOL_DOWN_SECONDS) -> None:
        self._cool_down_seconds = cool_down_seconds
        self._until: dict[tuple[str, str], float] = {}
        """By the provider and its model: what failed whatever the key."""
        self._keys: dict[tuple[str, str], float] = {}
        """The same for the gateway's key alone; own keys by their ids and versions."""

    def failed(
        self, endpoint: Endpoint, error: ProviderFailure, now: float, own_key: OwnKey | None = None
    ) -> None:
        """Note a failure, unless it is the request's own fault.

        A rate limit's own hint counts if it is longer than the usual time. `now` is in monotonic
        seconds.
        """
        if isinstance(error, (ProviderRefused, ProviderModerated)):
            return
        if own_key is not None and error.provider_status == STATUS["not_found"]:
            return  # its owner's account lacks the model; ours may have it
        hint = min(float(error.retry_after or 0), _LONGEST_SECONDS)
        seconds = max(self._cool_down_seconds, hint)
        if error.concerns_key:
            self._keys[_key_place(endpoint, own_key)] = now + seconds
        else:
            self._until[endpoint.provider, endpoint.model] = now + seconds

    def answered(self, endpoint: Endpoint, own_key: OwnKey | None = None) -> None:
        """Note that an endpoint accepted a request."""
        if self._until:
            self._until.pop((endpoint.provider, endpoint.model), None)
        if self._keys:
            self._keys.pop(_key_place(endpoint, own_key), None)

    def is_cooling(self, endpoint: Endpoint, now: float) -> bool:
        """Tell whether an endpoint failed of late, asked with the gateway's key."""
        if not self._until and not self._keys:
            return False
        place = endpoint.provider, endpoint.model
        return max(self._until.get(place, 0.0), self._keys.get(place, 0.0)) > now

    def is_out(self, endpoint: Endpoint, now: float) -> bool:
        """Tell whether an endpoint failed of late, whatever the key."""
        return self._until.get((endpoint.provider, endpoint.model), 0.0) > now

    def key_cools(self, key: OwnKey, now: float) -> bool:
        """Tell whether an own key was refused or limited of late."""
        return self._keys.get((key.stored.id, str(key.stored.version)), 0.0) > now


def _key_place(endpoint: Endpoint, own_key: OwnKey | None) -> tuple[str, str]:
    if own_key is None:
        return endpoint.provider, endpoint.model
    return own_key.stored.id, str(own_key.stored.version)
