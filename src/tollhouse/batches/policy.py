"""Decisions about batches that need neither database nor network. Pure.

catalog_name(model)           what the catalogue calls it: `:batch` means the same model
candidates(...)               the endpoints that may run it, first to last
estimate_nano(...)            what it may cost, for the reservation
check_rate / check_open       how many batches an account may submit, and have open
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.pricing import estimate_many
from tollhouse.batches.types import Endpoint, Sight
from tollhouse.inference import policy_filter, routing
from tollhouse.inference.preferences import read_preferences
from tollhouse.inference.types import FREE_VARIANT, Dialect
from tollhouse.kernel.errors import Invalid, NotFound, RateLimited, RateWindow, Unprocessable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from tollhouse.batches.types import Batch, BatchDemand
    from tollhouse.identity.types import AccessPolicy, Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.types import Endpoint as Offer
    from tollhouse.inference.types import Model, Preferences

MODEL_SUFFIX: Final = ":batch"
_TALKS: Final = frozenset({Dialect.CHAT, Dialect.RESPONSES, Dialect.MESSAGES})
_DIALECTS: Final[Mapping[Endpoint, frozenset[Dialect]]] = {
    Endpoint.CHAT_COMPLETIONS: _TALKS,
    Endpoint.RESPONSES: _TALKS,
    Endpoint.MESSAGES: _TALKS,
    Endpoint.EMBEDDINGS: frozenset({Dialect.EMBEDDINGS}),
}
"""In what a provider can be asked what an endpoint takes."""
_HOUR: Final = timedelta(hours=1)
_WHILE_OPEN: Final = timedelta(minutes=1)
"""When it is worth asking again whether a batch has ended."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The numbers that the operator may set."""

    window: timedelta = timedelta(hours=24)
    """How long a batch may run."""
    retention: timedelta = timedelta(days=30)
    """How long its items and results are kept, from its creation."""
    per_hour: int = 500
    """Batches that an account may submit in an hour."""
    most_open: int = 100
    """Batches of an account that have not ended."""
    assumed_output_tokens: int = 1_000
    """What an item is estimated to write that sets no limit."""


def catalog_name(model: str) -> str:
    """Return the catalogue's name of a batch's model.

    Source: the public gateway's documentation; `:batch` names the same model at the batch's price.
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
    endpoint: Endpoint,
    wish: Preferences,
    policies: Sequence[AccessPolicy],
    spoken: Callable[[Offer], Collection[Dialect]],
) -> Sequence[Offer]:
    """Return who may run a batch, in the catalogue's order.

    Args:
        model: The batch's.
        endpoint: The batch's.
        wish: What the batch says of routing.
        policies: What the caller's requests may reach.
        spoken: What an offer's provider speaks.

    Raises:
        Invalid: Nobody answers requests of this kind, or nobody of those that the batch names.
        Forbidden: Somebody does, but the policies allow none of them.
    """
    wanted = _DIALECTS[endpoint]
    found = [each for each in model.endpoints if wanted & set(each.dialects or spoken(each))]
    if not found:
        raise Invalid(f"model: {model.id} does not answer requests to {endpoint}.")
    if policies:
        found = policy_filter.allowed(policies, found, lambda each: (model.id, each))
    wished = ranked(found, wish)
    if not wished:
        who = ", ".join(dict.fromkeys(each.provider for each in found))
        why = routing.objection(found[0], wish)
        where = "provider" if why == "unvouched" else f"provider.{why}"
        raise Invalid(f"{where}: none of them runs {model.id}; there are: {who}.")
    return wished


def preferences(wish: Mapping[str, object]) -> Preferences:
    """Return what a batch's `provider` says of routing.

    Raises:
        Invalid: A field is of the wrong type.
    """
    return read_preferences({"provider": msgspec.Raw(msgspec.json.encode(wish))})


def ranked(offers: Sequence[Offer], wish: Preferences) -> Sequence[Offer]:
    """Return those of some offers that a batch may be run by, in the order in which it wants them.

    What an item's parameters need is not known yet.
    """
    meeting = [each for each in offers if routing.objection(each, wish) is None]
    tried = sorted(meeting, key=lambda each: routing.rank(each, wish))
    return tried if wish.allow_fallbacks else tried[:1]


def estimate_nano(
    demand: BatchDemand, endpoint: Endpoint, offers: Sequence[Offer], rules: BatchRules
) -> int:
    """Return what a batch may cost, at the dearest of those who may run it.

    Items without a limit of their output count `assumed_output_tokens`: few write as much as the
    model allows, and what they write beyond it is charged all the same.
    """
    output = demand.output_tokens + demand.unlimited * rules.assumed_output_tokens
    if endpoint is Endpoint.EMBEDDINGS:
        output = 0
    return max(
        estimate_many(
            requests=demand.items,
            input_tokens=demand.input_tokens,
            largest_input=demand.largest_input,
            output_tokens=output,
            images=demand.images,
            price=offer.price,
            factor=offer.batch_price_factor,
        )
        for offer in offers
    )


def check_rate(rules: BatchRules, count: int, first: datetime | None, now: datetime) -> None:
    """Return where an account may submit another batch.

    Args:
        rules: The operator's numbers.
        count: How many it submitted in the last hour.
        first: When the first of them was.
        now: The time.

    Raises:
        RateLimited: It submitted as many as it may.
    """
    if count < rules.per_hour:
        return
    resets_at = (first or now) + _HOUR
    seconds = max(1, -(-(resets_at - now) // timedelta(seconds=1)))
    message = f"Rate limit exceeded: batches-per-hour ({rules.per_hour}). Wait {seconds} seconds."
    raise _limited(message, rules.per_hour, resets_at)


def check_open(rules: BatchRules, count: int, now: datetime) -> None:
    """Return where an account may have another batch open.

    Raises:
        RateLimited: It has as many open as it may.
    """
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


def sight(subject: Subject) -> Sight:
    """Return which batches a key may know of: those of its workspace.

    An intern sees what was submitted with its own key, and nothing else. Where a manager deleted
    that key, the one that it got in its place sees the same.
    """
    return Sight(subject.workspace_id, subject.intern_id)


def is_kept(batch: Batch, rules: BatchRules, now: datetime) -> bool:
    """Tell whether a batch can still be read: it is not deleted, nor past its retention."""
    return batch.deleted_at is None and now < batch.created_at + rules.retention
