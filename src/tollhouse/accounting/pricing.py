"""What a reply costs: the one formula, for streamed and whole replies alike.

    cost      sum(tokens of a class x price of the class) + request + images + searches, rounded
              once; of the output tokens those of reasoning have a price of their own
    charge    cost, unless the no-charge rule holds or the usage is not known

The provider's cost and the customer's charge are two figures: a reply that failed costs the
customer nothing, whatever the provider bills.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tollhouse.accounting.types import Charge, Cost, CostState, Price, Rates, Units, Usage
from tollhouse.kernel.money import MAX_NANO, divide_half_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FULL_PRICE: Final = Decimal(1)
"""The factor of what has no discount."""


def rates_for(price: Price, usage: Usage) -> Rates:
    """Return the rates of the highest tier that the usage's input has passed."""
    rates = price.rates
    for tier in price.tiers:
        if usage.prompt_tokens > tier.above_tokens:
            rates = tier.rates
    return rates


def cost(usage: Usage, price: Price, factor: Decimal = FULL_PRICE, images: int = 0) -> Cost:
    """Return what a reply's final usage costs at the price of the endpoint that answered.

    The factor (a batch discount) is for token prices, not for the request's fee, its images and
    searches.
    """
    units = (rates_for(price, usage) if price.tiers else price.rates).units
    numerator, denominator = (1, 1) if factor is FULL_PRICE else factor.as_integer_ratio()
    prompt = numerator * (
        usage.input_tokens * units.prompt
        + usage.cache_read_tokens * units.cache_read
        + usage.cache_write_tokens * units.cache_write
        + usage.cache_write_1h_tokens * units.cache_write_1h
    )
    # Some providers report more reasoning than output; what was not written is not charged.
    reasoning = min(usage.reasoning_tokens, usage.output_tokens)
    completion = numerator * (
        (usage.output_tokens - reasoning) * units.completion + reasoning * units.reasoning
    )
    fees = units.request + images * units.image
    fees += usage.searches * units.web_search + usage.file_searches * units.file_search
    total = prompt + completion + denominator * fees
    per_nano = denominator * units.per_nano
    total_nano = divide_half_up(total, per_nano)
    completion_nano = divide_half_up(completion, per_nano)
    return Cost(total_nano, total_nano - completion_nano, completion_nano)


def estimate(
    input_tokens: int, output_tokens: int | None, price: Price, cap_nano: int = MAX_NANO
) -> int:
    """Return what a request's tokens may cost, for the hold while it runs.

    Input counts at the price without a cache: what is written to a cache for an hour may cost up to
    twice that with some providers, but few requests ask for it, and a hold is no charge. Output
    counts at the dearer of the completion and the reasoning price. The request's fee and images are
    not in it. Of a price with tiers, the dearest that the input may reach.

    It is in nano-credits, rounded up, at most the cap; the cap itself where output costs something
    and has no limit (None).
    """
    most = 0
    for units in _reachable(price, input_tokens) if price.tiers else price.units:
        if output_tokens is None and units.output:
            return cap_nano
        total = input_tokens * units.prompt + (output_tokens or 0) * units.output
        most = max(most, -(-total // units.per_nano))
    return min(cap_nano, most)


def maximum_cost(
    input_tokens: int, output_tokens: int, images: int, price: Price, searches: int = 0
) -> int:
    """Return the most that a request may cost: rounded up, not capped.

    Its fee, its images and so many searches are included.
    """
    tokens = estimate(input_tokens, output_tokens, price)
    return tokens + most_fees(images, searches, price) if price.has_fees else tokens


def most_fees(images: int, searches: int, price: Price) -> int:
    """Return the most that a request may cost beside its tokens: rounded up."""
    return max(
        -(-(each.request + images * each.image + searches * each.web_search) // each.per_nano)
        for each in price.units
    )


def affordable_output(
    nano: int, input_tokens: int, images: int, price: Price, searches: int = 0
) -> int | None:
    """Return how much output an amount pays for beside the rest, in tokens; None if it is free.

    It is rounded down, 0 or more.
    """
    reachable = _reachable(price, input_tokens)
    rate = max(Fraction(each.output, each.per_nano) for each in reachable)
    if not rate:
        return None
    return max(0, int((nano - maximum_cost(input_tokens, 0, images, price, searches)) / rate))


def estimate_many(  # noqa: PLR0913 - each is a total of its own
    *,
    requests: int,
    input_tokens: int,
    largest_input: int,
    output_tokens: int,
    images: int,
    price: Price,
    factor: Decimal = FULL_PRICE,
) -> int:
    """Return what many requests at one price may cost together, their fees and images included.

    Tokens and images are totals, and count as in `estimate`; `largest_input` is that of one
    request. Of a price with tiers, each rate is the dearest that any of the requests may reach.
    This is rounded up once and charges are rounded one by one: they may be more by half a
    nano-credit each.
    """
    reachable = _reachable(price, largest_input)

    def dearest(rate: Callable[[Units], int]) -> Fraction:
        return max(Fraction(rate(units), units.per_nano) for units in reachable)

    output = output_tokens * dearest(lambda units: units.output)
    tokens = input_tokens * dearest(lambda units: units.prompt) + output
    fees = requests * dearest(lambda units: units.request)
    return ceil(Fraction(factor) * tokens + fees + images * dearest(lambda units: units.image))


def _reachable(price: Price, input_tokens: int) -> Sequence[Units]:
    passed = [tier.rates.units for tier in price.tiers if input_tokens > tier.above_tokens]
    return [price.rates.units, *passed]


def no_charge(output_tokens: int, finish_reason: str | None) -> bool:
    """Tell whether a reply is free because it failed.

    Source: the public gateway's no-charge rule: zero completion tokens and an empty finish
    reason, or finish reason `error`.
    """
    return finish_reason == "error" or (output_tokens == 0 and finish_reason is None)


def charge_for(  # noqa: PLR0913 - each decides in a way of its own
    reported: Usage | None,
    seen: Usage,
    price: Price,
    *,
    finish_reason: str | None,
    broken_off: bool,
    left: bool = False,
    images: int = 0,
    factor: Decimal = FULL_PRICE,
) -> Charge:
    """Return what is booked for a reply.

    `reported` is the provider's usage, zeros included; `seen` the tokens that passed by, counted by
    us. Without a reported usage the charge is estimated for a reply that was broken off, so that
    none could come, and unknown (and nothing) for one that ended. It is unknown, too, where
    searches have no price; the rest is charged. `left`: the client went away, which makes nothing
    free, since the provider bills what it was sent. The factor (a batch discount) is for the
    customer's token prices; the provider's cost stays the whole.
    """
    if reported is None and not broken_off:
        return Charge(CostState.UNKNOWN, seen, cost_nano=0, provider_cost_nano=None, cost=None)
    state = CostState.ESTIMATED if reported is None else CostState.EXACT
    usage = seen if reported is None else reported
    full = cost(usage, price, images=images)
    owed = full if factor is FULL_PRICE else cost(usage, price, factor, images)
    if not left and no_charge(usage.output_tokens, finish_reason):
        owed = Cost(0, 0, 0)
    searched = usage.searches or usage.file_searches
    if searched and not price.is_free and _has_unknown_fees(usage, rates_for(price, usage)):
        return Charge(CostState.UNKNOWN, usage, owed.total_nano, provider_cost_nano=None, cost=None)
    return Charge(state, usage, owed.total_nano, full.total_nano, owed)


def _has_unknown_fees(usage: Usage, rates: Rates) -> bool:
    of_web, of_files = rates.web_search is None, rates.file_search is None
    return bool((usage.searches and of_web) or (usage.file_searches and of_files))


def with_own_key(charge: Charge, fee: Fraction) -> Charge:
    """Return what is booked for a reply whose provider was shown the customer's own key.

    The provider bills the customer for its whole work; here it costs the fee alone, which is a part
    of the charge.

    Source: https://openrouter.ai/docs/guides/overview/auth/byok: a per cent of what the same model
    and provider would cost with the gateway's key.
    """
    owed = divide_half_up(charge.cost_nano * fee.numerator, fee.denominator) if fee else 0
    return replace(charge, cost_nano=owed, is_byok=True)


def most_with_own_key(nano: int, fee: Fraction) -> int:
    """Return the most that the fee of what a provider takes so much for comes to: rounded up."""
    return -(-nano * fee.numerator // fee.denominator)
