from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.seams.accounting import (
    FREE,
    Cost,
    CostState,
    Price,
    Rates,
    Tier,
    Usage,
    charge_for,
    cost,
    estimate,
    estimate_many,
    maximum_cost,
    rates_for,
)

CLASSES = {
    "input_tokens": "prompt",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "cache_write_1h_tokens": "cache_write_1h",
    "output_tokens": "completion",
}
NANO = Decimal("1E-9")

tokens = st.integers(0, 10**7)
prices = st.decimals(0, Decimal("0.01"), places=15, allow_nan=False, allow_infinity=False)
usages = st.builds(Usage, *[tokens] * 5)
rates = st.builds(Rates, *[prices] * 6)


def flat(credits_a_token: str, request: str = "0") -> Rates:
    return Rates(*[Decimal(credits_a_token)] * 5, request=Decimal(request))


class TestCost:
    @given(usages, rates)
    def test_is_the_sum_over_the_disjoint_classes(self, usage: Usage, price: Rates) -> None:
        exact = price.request + sum(
            getattr(usage, tokens_) * getattr(price, rate) for tokens_, rate in CLASSES.items()
        )
        assert abs(cost(usage, Price(price)).total_nano - exact / NANO) <= Decimal("0.5")

    @given(usages, rates, st.integers(0, 10**7))
    def test_does_not_count_reasoning_twice(
        self, usage: Usage, price: Rates, reasoning: int
    ) -> None:
        thought = structs.replace(usage, reasoning_tokens=reasoning)
        assert cost(thought, Price(price)) == cost(usage, Price(price))

    @given(usages, rates, prices, st.integers(0, 10**7))
    def test_counts_reasoning_at_its_own_price_and_the_rest_at_the_completions(
        self, usage: Usage, price: Rates, reasoning_price: Decimal, reasoning: int
    ) -> None:
        reasoning = min(reasoning, usage.output_tokens)
        thought = structs.replace(usage, reasoning_tokens=reasoning)
        own = cost(thought, Price(replace(price, reasoning=reasoning_price))).total_nano
        dearer = reasoning * (reasoning_price - price.completion)
        assert abs(own - cost(usage, Price(price)).total_nano - dearer / NANO) <= 1

    def test_charges_no_more_reasoning_than_output(self) -> None:
        price = Price(replace(flat("0.000000001"), reasoning=2 * NANO))
        assert cost(Usage(output_tokens=3, reasoning_tokens=5), price) == Cost(6, 0, 6)

    @given(usages, rates, prices, st.integers(0, 99), st.decimals(0, 2, places=3))
    def test_has_parts_that_add_up_to_it(
        self, usage: Usage, price: Rates, image: Decimal, images: int, factor: Decimal
    ) -> None:
        found = cost(usage, Price(replace(price, image=image)), factor, images)
        assert found.prompt_nano + found.completion_nano == found.total_nano
        assert min(found.prompt_nano, found.completion_nano) >= 0

    def test_is_rounded_once_and_not_for_each_class(self) -> None:
        price = Price(flat("0.0000000004"))
        assert cost(Usage(input_tokens=1, output_tokens=1), price) == Cost(1, 1, 0)

    def test_has_the_completion_as_one_part_and_all_else_as_the_other(self) -> None:
        usage = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=4)
        price = Price(replace(flat("0.000000001", request="0.5"), image=Decimal("0.1")))
        assert cost(usage, price, images=2) == Cost(700_000_007, 700_000_003, 4)

    def test_multiplies_token_prices_with_the_factor_and_no_fee(self) -> None:
        fees = {"image": 1_000 * NANO, "web_search": 10_000 * NANO, "file_search": 100_000 * NANO}
        price = Price(replace(flat("0.000000010", request="0.000000100"), **fees))
        usage = Usage(input_tokens=10, output_tokens=2, searches=1, file_searches=3)
        assert cost(usage, price, Decimal("0.5"), images=2) == Cost(312_160, 312_150, 10)

    def test_keeps_digits_that_pythons_own_context_would_round(self) -> None:
        half_a_nano_less = Decimal("0.1234567894999999999999999999999999999")
        assert cost(Usage(input_tokens=1), Price(flat(str(half_a_nano_less)))).total_nano == (
            123_456_789
        )


class TestTiers:
    PRICE = Price(flat("1"), tiers=(Tier(200, flat("2")), Tier(1_000, flat("3"))))

    @pytest.mark.parametrize(
        ("prompt", "credits_a_token"), [(200, 1), (201, 2), (1_000, 2), (1_001, 3)]
    )
    def test_hold_from_one_token_above_their_bound(self, prompt: int, credits_a_token: int) -> None:
        assert rates_for(self.PRICE, Usage(input_tokens=prompt)) == flat(str(credits_a_token))

    def test_hold_for_the_whole_request(self) -> None:
        usage = Usage(input_tokens=201, output_tokens=10)
        assert cost(usage, self.PRICE).total_nano == 2 * 211 * 10**9


CAP = 2 * 10**9
factors = st.decimals(0, 2, places=3)


class TestEstimate:
    @given(usages, st.builds(Rates, *[prices] * 6, reasoning=prices), st.data())
    def test_is_not_below_the_cost_of_any_usage_within_the_demand(
        self, most: Usage, price: Rates, data: st.DataObject
    ) -> None:
        cheap_caches = replace(
            price,
            cache_read=min(price.cache_read, price.prompt),
            cache_write=min(price.cache_write, price.prompt),
            cache_write_1h=min(price.cache_write_1h, price.prompt),
            request=Decimal(0),
        )
        parts = {name: data.draw(st.integers(0, getattr(most, name))) for name in CLASSES}
        thoughts = data.draw(st.integers(0, parts["output_tokens"]))
        usage = Usage(**parts, reasoning_tokens=thoughts)
        held = estimate(most.prompt_tokens, most.output_tokens, Price(cheap_caches), 10**20)
        assert held >= cost(usage, Price(cheap_caches)).total_nano

    @given(tokens, tokens, st.lists(rates, min_size=3, max_size=3))
    def test_does_not_fall_when_the_demand_grows(
        self, input_: int, output: int, given_: list[Rates]
    ) -> None:
        price = Price(given_[0], tiers=(Tier(10**3, given_[1]), Tier(10**6, given_[2])))
        held = estimate(input_, output, price, CAP)
        assert held <= estimate(input_ * 2, output, price, CAP) <= CAP
        assert held <= estimate(input_, output * 2, price, CAP) <= CAP

    @given(tokens, tokens, st.integers(0, 9), st.builds(Rates, *[prices] * 6, image=prices))
    def test_is_the_same_where_a_tier_changes_nothing(
        self, input_: int, output: int, images: int, given_: Rates
    ) -> None:
        one, both = Price(given_), Price(given_, tiers=(Tier(10**6, given_),))
        for most in (output, None):
            assert estimate(input_, most, one, CAP) == estimate(input_, most, both, CAP)
        assert maximum_cost(input_, output, images, one) == maximum_cost(
            input_, output, images, both
        )


class TestEstimateMany:
    @given(
        st.lists(st.tuples(tokens, tokens, st.integers(0, 9)), min_size=1, max_size=5),
        st.lists(st.builds(Rates, *[prices] * 6, reasoning=prices), min_size=3, max_size=3),
        factors,
    )
    def test_is_not_below_the_costs_of_all_but_for_rounding(
        self, demands: list[tuple[int, int, int]], given_: list[Rates], factor: Decimal
    ) -> None:
        price = Price(given_[0], tiers=(Tier(10**3, given_[1]), Tier(10**6, given_[2])))
        costs = [
            cost(Usage(input_, output_tokens=output, reasoning_tokens=thought), price, factor, seen)
            for input_, output, seen in demands
            for thought in (0, output)
        ]
        dearest = sum(
            max(each.total_nano for each in pair)
            for pair in zip(costs[::2], costs[1::2], strict=True)
        )
        inputs, outputs, images = zip(*demands, strict=True)
        held = estimate_many(
            requests=len(demands),
            input_tokens=sum(inputs),
            largest_input=max(inputs),
            output_tokens=sum(outputs),
            images=sum(images),
            price=price,
            factor=factor,
        )
        assert held >= dearest - len(demands) / 2


PENNY = flat("0.000000001")
WITH_FEES = replace(flat("0.000000001", request="0.000000100"), image=1_000 * NANO)
FEE_ALONE = Price(replace(flat("0", request="1"), image=Decimal(1)))
TWO_TIERS = Price(PENNY, tiers=(Tier(200, flat("0.000000002")),))
SECOND_CHEAPER = Price(flat("0.000000002"), tiers=(Tier(200, PENNY),))
DEAR_THOUGHTS = Price(replace(PENNY, reasoning=3 * NANO))
CACHES = Price(replace(PENNY, cache_read=NANO / 10, cache_write_1h=2 * NANO))


@pytest.mark.parametrize(
    ("price", "input_", "output", "nano"),
    [
        pytest.param(Price(flat("0.0000000001")), 1, 0, 1, id="rounded up"),
        pytest.param(FEE_ALONE, 1_000, None, 0, id="neither the request nor images"),
        pytest.param(Price(PENNY), 1, None, CAP, id="output without a limit is the cap"),
        pytest.param(Price(replace(PENNY, completion=Decimal(0))), 7, None, 7, id="free output"),
        pytest.param(DEAR_THOUGHTS, 0, 5, 15, id="reasoning is dearer"),
        pytest.param(Price(replace(PENNY, reasoning=Decimal(0))), 0, 5, 5, id="it is cheaper"),
        pytest.param(CACHES, 10, 0, 10, id="the input without a cache"),
        pytest.param(TWO_TIERS, 200, 0, 200, id="below the tier"),
        pytest.param(TWO_TIERS, 201, 0, 402, id="the tier of the input"),
        pytest.param(SECOND_CHEAPER, 300, 0, 600, id="the dearest tier below the input"),
    ],
)
def test_an_estimate(price: Price, input_: int, output: int | None, nano: int) -> None:
    assert estimate(input_, output, price, CAP) == nano


@pytest.mark.parametrize("name", ["completion", "reasoning"])
def test_an_estimate_is_the_cap_where_but_one_kind_of_output_costs(name: str) -> None:
    silent = replace(flat("0"), reasoning=Decimal(0))
    assert estimate(1, None, Price(replace(silent, **{name: Decimal(1)})), CAP) == CAP


DEARER_FEES = (Tier(200, replace(flat("0", request="0.000000007"), image=5 * NANO)),)


@pytest.mark.parametrize(
    ("price", "input_", "output", "images", "nano"),
    [
        pytest.param(Price(WITH_FEES), 10, 5, 2, 15 + 100 + 2_000, id="tokens, fee and images"),
        pytest.param(
            Price(replace(flat("0"), image=NANO), DEARER_FEES), 1, 1, 2, 7 + 10, id="dearest tier"
        ),
        pytest.param(Price(flat("0", request="0.0000000001")), 0, 0, 0, 1, id="rounded up"),
    ],
)
def test_the_most_that_a_request_can_cost(
    price: Price, input_: int, output: int, images: int, nano: int
) -> None:
    assert maximum_cost(input_, output, images, price) == nano


FREE_ANSWERS = Price(PENNY, tiers=(Tier(200, replace(flat("0.000000002"), completion=Decimal(0))),))


@pytest.mark.parametrize(
    ("price", "totals", "factor", "nano"),
    [
        pytest.param(Price(WITH_FEES), (3, 10, 0, 5, 2), "1", 15 + 300 + 2_000, id="all of it"),
        pytest.param(Price(WITH_FEES), (1, 10, 0, 4, 1), "0.5", 7 + 100 + 1_000, id="the factor"),
        pytest.param(FREE_ANSWERS, (0, 300, 0, 10, 0), "1", 300 + 10, id="all below the tier"),
        pytest.param(FREE_ANSWERS, (0, 300, 201, 10, 0), "1", 600 + 10, id="each rate's dearest"),
        pytest.param(DEAR_THOUGHTS, (0, 0, 0, 5, 0), "1", 15, id="reasoning is dearer"),
        pytest.param(Price(flat("0.0000000001")), (2, 10, 0, 1, 0), "1", 2, id="rounded up once"),
    ],
)
def test_an_estimate_of_many(
    price: Price, totals: tuple[int, int, int, int, int], factor: str, nano: int
) -> None:
    names = ("requests", "input_tokens", "largest_input", "output_tokens", "images")
    told = dict(zip(names, totals, strict=True))
    assert estimate_many(**told, price=price, factor=Decimal(factor)) == nano


SEEN = Usage(input_tokens=3, output_tokens=2)
TOLD = Usage(input_tokens=10, output_tokens=5)
NOTHING = Cost(0, 0, 0)


@pytest.mark.parametrize(
    ("reported", "finish_reason", "broken_off", "state", "owed", "provider_nano"),
    [
        (TOLD, "stop", False, CostState.EXACT, Cost(15, 10, 5), 15),
        (TOLD, "length", False, CostState.EXACT, Cost(15, 10, 5), 15),
        (TOLD, None, False, CostState.EXACT, Cost(15, 10, 5), 15),
        (TOLD, "stop", True, CostState.EXACT, Cost(15, 10, 5), 15),
        (TOLD, "error", False, CostState.EXACT, NOTHING, 15),
        (Usage(), "stop", False, CostState.EXACT, NOTHING, 0),
        (Usage(input_tokens=10), "stop", False, CostState.EXACT, Cost(10, 10, 0), 10),
        (Usage(input_tokens=10), None, False, CostState.EXACT, NOTHING, 10),
        (Usage(input_tokens=10), "error", False, CostState.EXACT, NOTHING, 10),
        (None, None, True, CostState.ESTIMATED, Cost(5, 3, 2), 5),
        (None, "error", True, CostState.ESTIMATED, NOTHING, 5),
        (None, "stop", False, CostState.UNKNOWN, None, None),
    ],
)
@pytest.mark.parametrize("factor", ["1", "0.5"])
def test_what_a_reply_is_charged(
    reported: Usage | None,
    finish_reason: str | None,
    *,
    broken_off: bool,
    state: CostState,
    owed: Cost | None,
    provider_nano: int | None,
    factor: str,
) -> None:
    """A failed reply, and one without output and without an end, costs nothing, whoever bills."""
    price = Price(flat("0.000000002"))
    booked = charge_for(
        reported,
        SEEN,
        price,
        finish_reason=finish_reason,
        broken_off=broken_off,
        factor=Decimal(factor),
    )
    usage = SEEN if reported is None else reported
    times = int(2 * Decimal(factor))
    if owed is not None:
        owed = Cost(owed.total_nano * times, owed.prompt_nano * times, owed.completion_nano * times)
    assert (booked.state, booked.usage, booked.cost) == (state, usage, owed)
    assert booked.cost_nano == (0 if owed is None else owed.total_nano)
    assert booked.provider_cost_nano == (None if provider_nano is None else 2 * provider_nano)


@pytest.mark.parametrize(("reported", "broken_off"), [(SEEN, False), (None, True)])
def test_a_charge_has_the_fee_and_the_images_in_it_without_the_factor(
    reported: Usage | None, *, broken_off: bool
) -> None:
    def charged(price: Rates, **facts: Any) -> tuple[Cost | None, int | None]:
        booked = charge_for(
            reported, SEEN, Price(price), finish_reason="stop", broken_off=broken_off, **facts
        )
        return booked.cost, booked.provider_cost_nano

    images = replace(PENNY, image=Decimal("0.1"))
    assert charged(images) == (Cost(5, 3, 2), 5)
    assert charged(images, images=2) == (Cost(200_000_005, 200_000_003, 2), 200_000_005)
    with_fee = flat("0.000000010", request="0.000000100")
    assert charged(with_fee, factor=Decimal("0.5")) == (Cost(125, 115, 10), 150)


@given(usages)
def test_the_total_is_the_sum_of_the_classes(usage: Usage) -> None:
    classes = [
        getattr(usage, field.name) for field in structs.fields(usage) if field.name in CLASSES
    ]
    assert usage.total_tokens == sum(classes)
    assert usage.prompt_tokens == usage.total_tokens - usage.output_tokens


def test_only_a_price_of_zeros_is_free() -> None:
    assert FREE.is_free
    assert Price(flat("0.0")).is_free
    assert Price(flat("0"), tiers=(Tier(200, flat("0")),)).is_free
    assert not Price(flat("0", request="0.1")).is_free
    assert not Price(flat("0"), tiers=(Tier(200, flat("1")),)).is_free


def test_images_may_cost_something_in_one_tier_alone() -> None:
    dear = replace(flat("0"), image=Decimal(1))
    assert Price(flat("0"), tiers=(Tier(200, dear),)).has_images
    assert not Price(flat("1", request="1"), tiers=(Tier(200, flat("2")),)).has_images


@pytest.mark.parametrize("name", [field.name for field in fields(Rates) if field.init])
def test_a_price_of_anything_is_not_free(name: str) -> None:
    silent = replace(flat("0"), reasoning=Decimal(0))
    assert not Price(replace(silent, **{name: Decimal(1)})).is_free
