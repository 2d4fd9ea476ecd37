"""Prices that the settings give, as our `Price`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tollhouse.accounting.types import FREE, Price, Rates

if TYPE_CHECKING:
    from decimal import Decimal

    from tollhouse.settings.sections import PricingSettings


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
        )
    )


def _first(given: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if given is None else given
