"""Decisions about batches that need neither database nor network. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tollhouse.accounting.pricing import FULL_PRICE, estimate_many, most_with_own_key
from tollhouse.batches.types import Batch, BatchDemand, BatchEndpoint, VisibilityFilter
from tollhouse.inference import policy_filter, routing
from tollhouse.inference.own_routing import attempts
from tollhouse.inference.request import read_preferences
from tollhouse.inference.types import FREE_VARIANT, Dialect, Endpoint, Model, Preferences
from tollhouse.kernel.errors import Invalid, NotFound, RateLimited, RateWindow, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from fractions import Fraction

    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.own_routing import OwnKeyUse
    from tollhouse.provider_keys.types import OwnKey

MODEL_SUFFIX: Final = ":batch"
_TALKS: Final = frozenset({Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES})
_DIALECTS: Final[Mapping[BatchEndpoint, frozenset[Dialect]]] = {
    BatchEndpoint.CHAT_COMPLETIONS: _TALKS,
    BatchEndpoint.RESPONSES: _TALKS,
    BatchEndpoint.MESSAGES: _TALKS,
    BatchEndpoint.EMBEDDINGS: frozenset({Dialect.EMBEDDINGS}),
}
"""In what a provider can be asked what an endpoint takes."""
_HOUR: Final = timedelta(hours=1)
_WHILE_OPEN: Final = timedelta(minutes=1)
"""When it is worth asking again whether a batch has ended."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The numbers that the operator may set."""

    window: timedelta = timedelta(hours=24)
    retention: timedelta = timedelta(days=30)
    """How long its items and results are kept, from its creation."""
    per_hour: int = 500
    most_open: int = 100
    """Batches of an account that have not ended."""
    assumed_output_tokens: int = 1_000
    """What an item is estimated to write that sets no limit."""


def catalog_name(model: str) -> str:
    """Return the catalogue's name of a batch's model: `:batch` is the same at the batch's price.

    Source: the public gateway's documentation.
    """
    return model.removesuffix(MODEL_SUFFIX)


def find_model(catalog: Catalog, model: str) -> Model:
    """Return the model of a batch.

    Raises:
        Invalid: There is none of that name.
        Unprocessable: It is a variant that no batch can have.
    """
    name = catalog_name(model)
    try:
        found = catalog.find(name)
    except NotFound as unknown:
        base, _, variant = name.partition(":")
        if variant and any(each.id == base for each in catalog.models):
            raise _no_variant(variant) from None
        raise Invalid(f"model: {unknown.message}") from None
    if found.is_free_variant:
        raise _no_variant(FREE_VARIANT[1:])
    return found


def _no_variant(variant: str) -> Unprocessable:
    message = f"model: the variant {':' + variant!r} cannot be run in a batch; leave it out."
    return Unprocessable(message)


def candidates(
    model: Model,
    endpoint: BatchEndpoint,
    preferred: Preferences,
    policies: Sequence[AccessPolicy],
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
) -> Sequence[Endpoint]:
    """Return who may run a batch, first to last.

    Raises:
        Invalid: Nobody answers requests of this kind, or nobody of those that the batch names.
        Forbidden: Somebody does, but the policies allow none of them.
    """
    spoken = _DIALECTS[endpoint]
    found = [each for each in model.endpoints if spoken & set(each.dialects or dialects_of(each))]
    if not found:
        raise Invalid(f"model: {model.id} does not answer requests to {endpoint}.")
    if policies:
        found = policy_filter.allowed(policies, found, lambda each: (model.id, each))
    ordered = ranked(found, preferred)
    if not ordered:
        who = ", ".join(dict.fromkeys(each.provider for each in found))
        why = routing.objection(found[0], preferred)
        where = "provider" if why == "unvouched" else f"provider.{why}"
        problem = _PROBLEMS.get(why or "", "none of them runs {model}").format(model=model.id)
        raise Invalid(f"{where}: {problem}; there are: {who}.")
    return ordered


class BatchRunners(NamedTuple):
    """Who may run a batch."""

    shared: Sequence[Endpoint]
    """With the gateway's own keys."""
    own: Sequence[Endpoint] = ()
    """With those of the customer."""


def runners(  # noqa: PLR0913, PLR0917 - each decides something of its own
    model: Model,
    endpoint: BatchEndpoint,
    preferred: Preferences,
    policies: Sequence[AccessPolicy],
    dialects_of: Callable[[Endpoint], Collection[Dialect]],
    use: OwnKeyUse,
) -> BatchRunners:
    """Return who may run a batch of somebody who may use some own keys; raise as `candidates`."""
    if not use:
        return BatchRunners(candidates(model, endpoint, preferred, policies, dialects_of))
    vouched = preferred.zdr and any(map(routing.promises_zdr, use.keys))
    wanted = replace(preferred, allow_fallbacks=True, zdr=preferred.zdr and not vouched)
    found = candidates(model, endpoint, wanted, policies, dialects_of)

    def admits(_: Endpoint, key: OwnKey | None) -> bool:
        return not vouched or routing.promises_zdr(key)

    asked = attempts(model, found, found, use, admits)
    if not preferred.allow_fallbacks:
        asked = [each for each in asked if each[0] is asked[0][0]]
    if not asked:
        raise Invalid(f"provider: nobody is left to run {model.id}, by the rules of own keys.")
    shared = [each for each, key in asked if key is None]
    return BatchRunners(shared, [each for each, key in asked if key is not None])


_PROBLEMS: Final = {
    "ignore": "it names all that run {model}",
    "data_collection": "deny leaves none, since all that run {model} keep data",
    "max_price": "all that run {model} cost more",
    "unvouched": "nobody who runs {model} vouches for what it demands",
}
"""Preference -> why nobody meets it; `only` names providers, and none of those runs the model."""


def preferences(provider: Mapping[str, object]) -> Preferences:
    """Return what a batch's `provider` says of routing; `Invalid` where a field's type is wrong."""
    return read_preferences({"provider": msgspec.Raw(msgspec.json.encode(provider))})


def ranked(endpoints: Sequence[Endpoint], preferred: Preferences) -> Sequence[Endpoint]:
    """Return the endpoints that a batch may be run by, in the order in which it prefers them.

    What an item's parameters need is not known yet.
    """
    meeting = [each for each in endpoints if routing.objection(each, preferred) is None]
    tried = sorted(meeting, key=lambda each: routing.rank(each, preferred))
    return tried if preferred.allow_fallbacks else tried[:1]


def estimate_nano(
    demand: BatchDemand, endpoint: BatchEndpoint, endpoints: Sequence[Endpoint], rules: BatchRules
) -> int:
    """Return what a batch may cost, at the dearest of those who may run it.

    Items without a limit of their output count `assumed_output_tokens`: few write as much as the
    model allows, and what they write beyond it is charged all the same.
    """
    output = demand.output_tokens + demand.unlimited * rules.assumed_output_tokens
    if endpoint is BatchEndpoint.EMBEDDINGS:
        output = 0
    return max(
        estimate_many(
            requests=demand.items,
            input_tokens=demand.input_tokens,
            largest_input=demand.largest_input,
            output_tokens=output,
            images=demand.images,
            price=each.price,
            factor=each.batch_price_factor,
        )
        for each in endpoints
    )


class BatchEstimate(NamedTuple):
    """What a batch reserves, in nano-credits."""

    amount_nano: int
    with_own_nano: int
    """Of limits that include own keys."""


def estimate(
    demand: BatchDemand,
    endpoint: BatchEndpoint,
    who: BatchRunners,
    rules: BatchRules,
    own_fee: Fraction,
) -> BatchEstimate:
    """Return what a batch may cost, with the gateway's keys or with own ones.

    These cost the fee of the price without the discount, which is what the provider takes.
    """
    shared = estimate_nano(demand, endpoint, who.shared, rules) if who.shared else 0
    if not who.own:
        return BatchEstimate(shared, shared)
    full = [replace(each, batch_price_factor=FULL_PRICE) for each in who.own]
    own = estimate_nano(demand, endpoint, full, rules)
    fee = most_with_own_key(own, own_fee)
    return BatchEstimate(max(shared, fee), max(shared, own + fee))


def check_rate(rules: BatchRules, count: int, first: datetime | None, now: datetime) -> None:
    """Raise `RateLimited` where an account submitted as many batches in the last hour as it may."""
    if count < rules.per_hour:
        return
    resets_at = (first or now) + _HOUR
    seconds = max(1, -(-(resets_at - now) // timedelta(seconds=1)))
    message = f"Rate limit exceeded: batches-per-hour ({rules.per_hour}). Wait {seconds} seconds."
    raise _limited(message, rules.per_hour, resets_at)


def check_open(rules: BatchRules, count: int, now: datetime) -> None:
    """Raise `RateLimited` where an account has as many batches open as it may."""
    if count >= rules.most_open:
        message = (
            f"Rate limit exceeded: open-batches ({rules.most_open}). "
            "Wait until one has ended, or cancel one."
        )
        raise _limited(message, rules.most_open, now + _WHILE_OPEN)


def rate_window(now: datetime) -> datetime:
    """Return since when batches count towards the rate."""
    return now - _HOUR


def _limited(message: str, limit: int, resets_at: datetime) -> RateLimited:
    window = RateWindow(limit, 0, resets_at)
    metadata = {"error_type": RateLimited.code, "headers": window.headers()}
    return RateLimited(message, window=window, metadata=metadata)


def visibility_of(subject: Subject) -> VisibilityFilter:
    """Return which batches a key may know of: those of its workspace.

    An intern sees what was submitted with its own key, and nothing else. Where a manager deleted
    that key, the one that it got in its place sees the same.
    """
    return VisibilityFilter(subject.workspace_id, subject.intern_id)


def is_kept(batch: Batch, rules: BatchRules, now: datetime) -> bool:
    """Tell whether a batch can still be read: it is not deleted, nor past its retention."""
    return batch.deleted_at is None and now < batch.created_at + rules.retention
