"""The models that this installation offers, and their prices.

Built once from the settings: pure but for the price list, which a library carries as data.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tollhouse.accounting.types import FREE, Price, Rates
from tollhouse.inference.providers.registry import dialects_named, search_prices_of, server_of
from tollhouse.inference.providers.simulated import models as simulated
from tollhouse.inference.types import Dialect, Endpoint, Model
from tollhouse.kernel.errors import NotFound, StartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from decimal import Decimal

    from tollhouse.settings.sections import (
        EndpointSettings,
        ModelSettings,
        PricingSettings,
        ProviderSettings,
    )


_LONGEST_ID = 200
_MOST_NAMED = 10
_LOOKED_FOR = ("claude", "anthropic")
_EMBEDS = frozenset({Dialect.EMBEDDINGS})


class Catalog:
    """Models by id, in the order of the settings."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models: Mapping[str, Model] = {model.id: model for model in models}
        self._aliases: dict[str, Model] = {}
        self._by_slug: dict[str, list[Model]] = {}
        for model in self._models.values():
            self._aliases |= dict.fromkeys(model.aliases, model)
            self._by_slug.setdefault(model.slug, []).append(model)

    @property
    def models(self) -> Sequence[Model]:
        """Every model."""
        return tuple(self._models.values())

    @cached_property
    def listed(self) -> Sequence[Model]:
        """Every model, and behind it, as models of their own, the aliases that Claude Code offers.

        Source: https://code.claude.com/docs/en/llm-gateway-protocol; it passes over other ids.
        """
        return [
            replace(model, id=name)
            for model in self._models.values()
            for name in (
                model.id,
                *(each for each in model.aliases if each.startswith(_LOOKED_FOR)),
            )
        ]

    def find(self, model_id: str) -> Model:
        """Return a model by its id, an alias, or its id without the author.

        Raises:
            NotFound: There is none, and the message names the nearest, or several have the name
                that was given without an author, and it names them.
        """
        model = self._models.get(model_id) or self._aliases.get(model_id)
        if model is not None:
            return model
        namesakes = self._by_slug.get(model_id, [])
        if len(namesakes) == 1:
            return namesakes[0]
        if namesakes:
            ids = [model.id for model in namesakes[:_MOST_NAMED]]
            more = f" and {len(namesakes) - len(ids)} more" if len(namesakes) > len(ids) else ""
            message = f"{model_id!r} is the name of several models: {', '.join(ids)}{more}."
            raise NotFound(f"{message} Add the author.")
        shown = model_id if len(model_id) <= _LONGEST_ID else model_id[:_LONGEST_ID] + "..."
        near = difflib.get_close_matches(shown, self._models, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else " GET /v1/models lists them."
        raise NotFound(f"No model {shown!r} in the catalogue.{hint}")

    def wanted(self, first: str, further: Sequence[str]) -> Sequence[Model]:
        """Return the models that a request names, each once, in its order; all have to exist."""
        if not further:
            return [self.find(first)]
        models = map(self.find, (first, *further))
        return list({model.id: model for model in models}.values())


def build_catalog(
    models: Sequence[ModelSettings], providers: Mapping[str, ProviderSettings], now: datetime
) -> Catalog:
    """Return the catalogue of an installation, with the list prices of this instant.

    Raises:
        StartError: A model's price is neither given nor on the price list.
    """
    own = [_model(each, providers, now) for each in models]
    taken = {each.id for each in own}
    acted = [
        model
        for each in providers.values()
        if each.kind == "simulated"
        for model in simulated.models(each.slug)
        if model.id not in taken
    ]
    listed = [model for each in providers.values() for model in _listed(each, now)]
    return Catalog([*listed, *own, *acted])


def _listed(provider: ProviderSettings, now: datetime) -> list[Model]:
    """Return the models of a provider's price list, if its settings want them."""
    if not provider.list_models:
        return []
    # Loaded here, as for a single price.
    from tollhouse.inference.list_prices import listed_models  # noqa: PLC0415

    models = [
        Model(
            id=f"{provider.slug}/{each.id}",
            name=f"{provider.name}: {each.name}",
            description="",
            context_length=each.context_length,
            max_completion_tokens=None,
            endpoints=(_endpoint(provider, each.id, each.price, _EMBEDS if each.embeds else None),),
        )
        for each in listed_models(provider, now)
    ]
    if not models:
        raise StartError(
            f"no price list is known for provider {provider.slug!r} at {provider.base_url}: "
            "leave list_models out and name its models"
        )
    return models


def _model(
    settings: ModelSettings, providers: Mapping[str, ProviderSettings], now: datetime
) -> Model:
    return Model(
        id=settings.id,
        name=settings.name or settings.id,
        description=settings.description or "",
        context_length=settings.context_length,
        max_completion_tokens=settings.max_completion_tokens,
        endpoints=tuple(
            replace(
                _endpoint(
                    providers[each.provider],
                    each.model,
                    _price(settings.id, each, providers[each.provider], now),
                    dialects_named(each.dialects) or None,
                ),
                profile=server_of(providers[each.provider], each).profile,
                max_completion_tokens=settings.max_completion_tokens,
                free_limits=each.free_limits,
                batch_price_factor=each.batch_price_factor,
            )
            for each in settings.endpoints
        ),
        requests_per_minute=settings.requests_per_minute,
        aliases=settings.aliases,
    )


def _endpoint(
    provider: ProviderSettings, model: str, price: Price, dialects: frozenset[Dialect] | None
) -> Endpoint:
    return Endpoint(
        provider=provider.slug,
        model=model,
        price=_with_known_fees(price, provider),
        idempotent=provider.idempotent,
        dialects=dialects,
        profile=server_of(provider).profile,
        provider_name=provider.name,
        keeps_data=provider.keeps_data,
    )


def _price(
    model_id: str, endpoint: EndpointSettings, provider: ProviderSettings, now: datetime
) -> Price:
    if endpoint.pricing is not None:
        return configured_price(endpoint.pricing)
    # Loaded here: an installation that names its own prices does without the price list's data.
    from tollhouse.inference.list_prices import list_price  # noqa: PLC0415

    price = list_price(endpoint.model, provider, now)
    if price is None:
        raise StartError(
            f"no price is known for model {model_id!r} at provider {endpoint.provider!r} "
            f"({endpoint.model!r}): add pricing to its endpoint, or pricing: free"
        )
    return price


def configured_price(pricing: PricingSettings | Literal["free"]) -> Price:
    """Return the price that the settings give; a cache price that is left out is the prompt's."""
    if pricing == "free":
        return FREE
    write = _first(pricing.input_cache_write, pricing.prompt)
    return Price(
        Rates(
            prompt=pricing.prompt,
            completion=pricing.completion,
            cache_read=_first(pricing.input_cache_read, pricing.prompt),
            cache_write=write,
            cache_write_1h=_first(pricing.input_cache_write_1h, write),
            request=pricing.request,
            reasoning=pricing.reasoning,
            image=pricing.image,
            web_search=pricing.web_search,
            file_search=pricing.file_search,
        )
    )


def _with_known_fees(price: Price, provider: ProviderSettings) -> Price:
    """Return a price with what a provider is known to take for a search, unless it says so."""
    known = search_prices_of(provider)
    fees = {name: fee for name, fee in known.items() if getattr(price.rates, name) is None}
    if not fees or price.is_free:
        return price
    tiers = (replace(tier, rates=replace(tier.rates, **fees)) for tier in price.tiers)
    return Price(replace(price.rates, **fees), tuple(tiers))


def _first(given: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if given is None else given
