"""List prices of known models, from the `genai-prices` package, as our `Price`.

Loaded only where a model without a price of its own is configured: the package's data takes
memory, and time at every start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import TieredPrices

from tollhouse.accounting.types import Price, Rates, Tier

if TYPE_CHECKING:
    from datetime import datetime

    from genai_prices.types import ModelPrice

    from tollhouse.settings.sections import ProviderSettings

_MILLION = Decimal(1_000_000)


def list_price(model: str, provider: ProviderSettings, now: datetime) -> Price | None:
    """Return the list price of this instant of a model at a provider, found by its address.

    The model goes by the provider's own name. None where the list does not have it, or has no price
    of its input tokens (a model billed by the minute or the character, say).
    """
    if provider.base_url is None:
        return None
    try:
        _, found = get_snapshot().find_provider_model(model, None, None, provider.base_url)
    except LookupError:
        return None
    return _from_list(found.get_prices(now))


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model of a provider's price list that answers in text, or with embeddings."""

    id: str
    name: str
    context_length: int
    price: Price
    embeds: bool


def listed_models(provider: ProviderSettings, now: datetime) -> list[ListedModel]:
    """Return the models of a provider's price list, found by the provider's address.

    Left out are those whose length is not known (retired ones, mostly), those that are billed by
    something else than tokens, and those that answer with sound or pictures.
    """
    if provider.base_url is None:
        return []
    try:
        listed = get_snapshot().find_provider(None, None, provider.base_url)
    except LookupError:
        return []
    return [
        ListedModel(
            id=model.id,
            name=model.name or model.id,
            context_length=model.context_window,
            price=price,
            embeds="embedding" in model.id,
        )
        for model in listed.models
        if model.context_window is not None
        and (price := _from_list(model.get_prices(now))) is not None
        and not _OTHER_MEDIA.search(model.id)
        # An entry for a family of names may have one that is none of them.
        and model.is_match(model.id)
    ]


_OTHER_MEDIA = re.compile("audio|realtime|transcribe|tts|image|live|moderation|whisper")


def _from_list(listed: ModelPrice) -> Price | None:
    if getattr(listed, "input_mtok", None) is None:
        return None
    starts = sorted({start for name in _LISTED for start in _starts(getattr(listed, name, None))})
    return Price(
        rates=_rates(listed, 0),
        tiers=tuple(Tier(start, _rates(listed, start + 1)) for start in starts),
    )


_LISTED = (
    "input_mtok",
    "output_mtok",
    "output_reasoning_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
)


def _rates(listed: ModelPrice, input_tokens: int) -> Rates:
    def per_token(name: str, default: Decimal = Decimal(0)) -> Decimal:
        price = _at(getattr(listed, name, None), input_tokens)
        return default if price is None else price / _MILLION

    prompt = per_token("input_mtok")
    write = per_token("cache_write_mtok", prompt)
    per_thousand = _at(getattr(listed, "requests_kcount", None), input_tokens)
    reasoning = _at(getattr(listed, "output_reasoning_mtok", None), input_tokens)
    return Rates(
        prompt=prompt,
        completion=per_token("output_mtok"),
        cache_read=per_token("cache_read_mtok", prompt),
        cache_write=write,
        cache_write_1h=per_token("cache_write_1h_mtok", write),
        request=Decimal(0) if per_thousand is None else per_thousand / 1000,
        reasoning=None if reasoning is None else reasoning / _MILLION,
    )


def _at(price: Decimal | TieredPrices | None, input_tokens: int) -> Decimal | None:
    """Return a price for a request of so many input tokens.

    Source: `genai_prices.types.TieredPrices`: crossing a threshold applies the tier to all tokens.
    """
    if not isinstance(price, TieredPrices):
        return price
    at = price.base
    for tier in price.tiers:
        if input_tokens > tier.start:
            at = tier.price
    return at


def _starts(price: Any) -> list[int]:  # noqa: ANN401 - the library sets its prices dynamically
    return [tier.start for tier in price.tiers] if isinstance(price, TieredPrices) else []
