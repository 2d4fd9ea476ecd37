"""Prices as clients read them: USD (= credits) as plain decimal texts.

`model_wire.PricingReply` describes the fields; an estimate shows the same without its library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from tollhouse.accounting.types import Price, Rates


_FEES: Final = ("web_search", "file_search")


def price_texts(price: Price) -> Mapping[str, object]:
    """Return the fields of a `PricingReply`, in its order."""
    rates = price.rates
    return {
        "prompt": plain(rates.prompt),
        "completion": plain(rates.completion),
        "internal_reasoning": plain(_reasoning(rates)),
        "request": plain(rates.request),
        "image": plain(rates.image),
        **_of_the_cache(rates),
        **{name: plain(fee) for name in _FEES if (fee := getattr(rates, name)) is not None},
        "discount": 0.0,
        "overrides": [
            {
                "min_prompt_tokens": tier.above_tokens,
                "prompt": plain(tier.rates.prompt),
                "completion": plain(tier.rates.completion),
                "internal_reasoning": plain(_reasoning(tier.rates)),
                **_of_the_cache(tier.rates),
            }
            for tier in price.tiers
        ],
    }


def plain(amount: Decimal) -> str:
    """Return a decimal without an exponent and without trailing zeros."""
    return f"{amount.normalize():f}"


def _reasoning(rates: Rates) -> Decimal:
    return rates.completion if rates.reasoning is None else rates.reasoning


def _of_the_cache(rates: Rates) -> Mapping[str, str]:
    return {
        "input_cache_read": plain(rates.cache_read),
        "input_cache_write": plain(rates.cache_write),
        "input_cache_write_1h": plain(rates.cache_write_1h),
    }
