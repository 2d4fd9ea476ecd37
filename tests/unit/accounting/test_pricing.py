from dataclasses import fields, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    no_charge,
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


def only(usage: Usage, name: str) -> Usage:
    return replace(Usage(), **{name: getattr(usage, name)})


class TestCost:
    @given(usages, rates)
    def test_is_the_sum_over_the_disjoint_classes(self, usage: Usage, price: Rates) -> None:
        exact = price.request + sum(
            getattr(usage, tokens_) * getattr(price, rate) for tokens_, rate in CLASSES.items()
        )
        assert abs(cost(usage, Price(price)).total_nano - exact / NANO) <= Decimal("0.5")

    @given(usages, rates)
    def test_differs_from_the_sum_of_the_classes_costs_by_rounding_alone(
        self, usage: Usage, price: Rates
    ) -> None:
        free_request = Price(replace(price, request=Decimal(0)))
        parts = [cost(only(usage, name), free_request).total_nano for name in CLASSES]
        whole = cost(usage, free_request).total_nano
        assert abs(whole - sum(parts)) <= len(parts) / 2

    @given(usages, rates, st.sampled_from(sorted(CLASSES)))
    def test_does_not_fall_when_a_class_grows(self, usage: Usage, price: Rates, name: str) -> None:
        grown = replace(usage, **{name: getattr(usage, name) + 1})
        assert cost(grown, Price(price)).total_nano >= cost(usage, Price(price)).total_nano

    @given(usages, rates, st.integers(0, 10**7))
    def test_does_not_count_reasoning_twice(
        self, usage: Usage, price: Rates, reasoning: int
    ) -> None:
        thought = replace(usage, reasoning_tokens=reasoning)
        assert cost(thought, Price(price)) == cost(usage, Price(price))

    @given(usages, rates, prices, st.integers(0, 10**7))
    def test_counts_reasoning_at_its_own_price_and_the_rest_at_the_completions(
        self, usage: Usage, price: Rates, reasoning_price: Decimal, reasoning: int
    ) -> None:
        reasoning = min(reasoning, usage.output_tokens)
        thought = replace(usage, reasoning_tokens=reasoning)
        own = cost(thought, Price(replace(price, reasoning=reasoning_price))).total_nano
        dearer = reasoning * (reasoning_price - price.completion)
        assert abs(own - cost(usage, Price(price)).total_nano - dearer / NANO) <= 1

    def test_charges_no_more_reasoning_than_output(self) -> None:
        price = Price(replace(flat("0.000000001"), reasoning=2 * NANO))
        assert cost(Usage(output_tokens=3, reasoning_tokens=5), price) == Cost(6, 0, 6)

    @given(usages, rates, st.integers(1, 9))
    def test_of_a_split_usage_is_that_of_the_whole_but_for_rounding(
        self, usage: Usage, price: Rates, parts: int
    ) -> None:
        token_price = Price(replace(price, request=Decimal(0)))
        split = [
            Usage(**{name: getattr(usage, name) // parts for name in CLASSES}) for _ in range(parts)
        ]
        split.append(Usage(**{name: getattr(usage, name) % parts for name in CLASSES}))
        sum_ = sum(cost(each, token_price).total_nano for each in split)
        assert abs(sum_ - cost(usage, token_price).total_nano) <= (len(split) + 1) / 2

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

    def test_has_no_image_in_it_unless_one_is_told(self) -> None:
        assert cost(Usage(), Price(Rates(*(5 * [Decimal(1)]), image=Decimal(1)))).total_nano == 0

    def test_multiplies_token_prices_with_the_factor_and_neither_request_nor_images(self) -> None:
        price = Price(replace(flat("0.000000010", request="0.000000100"), image=1_000 * NANO))
        usage = Usage(input_tokens=10, output_tokens=2)
        assert cost(usage, price, Decimal("0.5"), images=2) == Cost(2_160, 2_150, 10)

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
    @given(usages, st.builds(Rates, *[prices] * 6, reasoning=prices), factors, st.data())
    def test_is_not_below_the_cost_of_any_usage_within_the_demand(
        self, most: Usage, price: Rates, factor: Decimal, data: st.DataObject
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
        held = estimate(most.prompt_tokens, most.output_tokens, Price(cheap_caches), 10**20, factor)
        assert held >= cost(usage, Price(cheap_caches), factor).total_nano

    @given(tokens, tokens, st.lists(rates, min_size=3, max_size=3))
    def test_does_not_fall_when_the_demand_grows(
        self, input_: int, output: int, given_: list[Rates]
    ) -> None:
        price = Price(given_[0], tiers=(Tier(10**3, given_[1]), Tier(10**6, given_[2])))
        held = estimate(input_, output, price, CAP)
        assert held <= estimate(input_ * 2, output, price, CAP) <= CAP
        assert held <= estimate(input_, output * 2, price, CAP) <= CAP

    def test_is_rounded_up(self) -> None:
        assert estimate(1, 0, Price(flat("0.0000000001")), CAP) == 1

    def test_counts_neither_the_request_nor_images(self) -> None:
        price = Price(replace(flat("0", request="1"), image=Decimal(1)))
        assert estimate(1_000, None, price, CAP) == 0

    def test_is_the_cap_where_output_has_a_price_and_no_limit(self) -> None:
        assert estimate(1, None, Price(flat("0.000000001")), CAP) == CAP

    @pytest.mark.parametrize("name", ["completion", "reasoning"])
    def test_is_the_cap_where_but_one_kind_of_output_costs(self, name: str) -> None:
        rates_ = replace(flat("0"), reasoning=Decimal(0))
        price = Price(replace(rates_, **{name: Decimal(1)}))
        assert estimate(1, None, price, CAP) == CAP

    def test_is_that_of_the_input_where_output_costs_nothing(self) -> None:
        price = Price(replace(flat("0.000000001"), completion=Decimal(0)))
        assert estimate(7, None, price, CAP) == 7

    def test_takes_the_dearer_of_completion_and_reasoning(self) -> None:
        nano = Decimal("0.000000001")
        assert estimate(0, 5, Price(replace(flat(str(nano)), reasoning=3 * nano)), CAP) == 15
        assert estimate(0, 5, Price(replace(flat(str(nano)), reasoning=Decimal(0))), CAP) == 5

    def test_takes_the_input_without_a_cache(self) -> None:
        price = Price(replace(flat("0.000000001"), cache_read=NANO / 10, cache_write_1h=2 * NANO))
        assert estimate(10, 0, price, CAP) == 10

    @pytest.mark.parametrize(("prompt", "nano"), [(200, 200), (201, 402)])
    def test_takes_the_tier_of_the_input(self, prompt: int, nano: int) -> None:
        price = Price(flat("0.000000001"), tiers=(Tier(200, flat("0.000000002")),))
        assert estimate(prompt, 0, price, CAP) == nano

    def test_takes_the_dearest_tier_below_the_input(self) -> None:
        price = Price(flat("0.000000002"), tiers=(Tier(200, flat("0.000000001")),))
        assert estimate(300, 0, price, CAP) == 600

    def test_multiplies_with_the_factor(self) -> None:
        assert estimate(3, 4, Price(flat("0.000000001")), CAP, Decimal("0.5")) == 4
        assert estimate(3, None, Price(flat("1")), CAP, Decimal(0)) == 0


class TestMost:
    def test_is_the_tokens_the_fee_and_every_image(self) -> None:
        price = Price(replace(flat("0.000000001", request="0.000000100"), image=1000 * NANO))
        assert maximum_cost(10, 5, 2, price) == 15 + 100 + 2_000

    def test_takes_the_tier_with_the_dearest_fee_and_images(self) -> None:
        dear = replace(flat("0", request="0.000000007"), image=5 * NANO)
        price = Price(replace(flat("0"), image=NANO), tiers=(Tier(200, dear),))
        assert maximum_cost(1, 1, 2, price) == 7 + 10

    def test_rounds_a_part_of_a_nano_credit_up(self) -> None:
        price = Price(flat("0", request="0.0000000001"))
        assert maximum_cost(0, 0, 0, price) == 1


class TestEstimateMany:
    PRICE = Price(replace(flat("0.000000001", request="0.000000100"), image=1_000 * NANO))

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

    def test_has_the_tokens_every_fee_and_every_image_in_it(self) -> None:
        assert self.of(requests=3, input_tokens=10, output_tokens=5, images=2) == 15 + 300 + 2_000

    def test_multiplies_token_prices_with_the_factor_alone(self) -> None:
        held = self.of(requests=1, input_tokens=10, output_tokens=4, images=1, factor="0.5")
        assert held == 7 + 100 + 1_000

    def test_takes_each_rate_of_the_tier_where_it_is_dearest(self) -> None:
        tier = Tier(200, replace(flat("0.000000002"), completion=Decimal(0)))
        price = Price(flat("0.000000001"), tiers=(tier,))
        assert self.of(input_tokens=300, output_tokens=10, price=price) == 300 + 10
        held = self.of(input_tokens=300, largest_input=201, output_tokens=10, price=price)
        assert held == 600 + 10

    def test_takes_the_dearer_of_completion_and_reasoning(self) -> None:
        price = Price(replace(flat("0.000000001"), reasoning=3 * NANO))
        assert self.of(output_tokens=5, price=price) == 15

    def test_is_rounded_up_once(self) -> None:
        price = Price(flat("0.0000000001"))
        assert self.of(requests=2, input_tokens=10, output_tokens=1, price=price) == 2

    def of(self, *, price: Price = PRICE, factor: str = "1", **totals: int) -> int:
        """Return the estimate of totals that are 0 unless given."""
        zeros = dict.fromkeys(("requests", "input_tokens", "output_tokens", "images"), 0)
        told = {**zeros, "largest_input": 0, **totals}
        return estimate_many(**told, price=price, factor=Decimal(factor))


class TestNoCharge:
    @pytest.mark.parametrize(
        ("output_tokens", "finish_reason", "free"),
        [
            (0, None, True),
            (0, "error", True),
            (9, "error", True),
            (0, "stop", False),
            (9, None, False),
            (9, "stop", False),
            (9, "length", False),
        ],
    )
    def test_holds_for_failures_and_for_nothing_else(
        self, output_tokens: int, finish_reason: str | None, *, free: bool
    ) -> None:
        assert no_charge(output_tokens, finish_reason) is free


class TestCharge:
    PRICE = Price(flat("0.000000001"))
    SEEN = Usage(input_tokens=3, output_tokens=2)

    def test_is_exact_from_a_reported_usage(self) -> None:
        reported = Usage(input_tokens=10, output_tokens=5)
        booked = charge_for(reported, self.SEEN, self.PRICE, finish_reason="stop", broken_off=False)
        assert (booked.state, booked.usage) == (CostState.EXACT, reported)
        assert (booked.cost_nano, booked.provider_cost_nano) == (15, 15)
        assert booked.cost == Cost(15, 10, 5)

    def test_has_the_images_of_the_request_in_it(self) -> None:
        price = Price(replace(flat("0.000000001"), image=Decimal("0.1")))
        for reported, broken_off in [(self.SEEN, False), (None, True)]:
            booked = charge_for(
                reported,
                self.SEEN,
                price,
                finish_reason="stop",
                broken_off=broken_off,
                images=2,
            )
            assert booked.cost == Cost(200_000_005, 200_000_003, 2)

    def test_has_the_factor_in_what_the_customer_owes_and_not_in_the_providers_cost(self) -> None:
        price = Price(flat("0.000000010", request="0.000000100"))
        for reported, broken_off in [(self.SEEN, False), (None, True)]:
            booked = charge_for(
                reported,
                self.SEEN,
                price,
                finish_reason="stop",
                broken_off=broken_off,
                factor=Decimal("0.5"),
            )
            assert (booked.cost_nano, booked.provider_cost_nano) == (125, 150)
            assert booked.cost == Cost(125, 115, 10)

    def test_is_nothing_for_a_failed_reply_whatever_the_factor(self) -> None:
        booked = charge_for(
            None,
            self.SEEN,
            self.PRICE,
            finish_reason="error",
            broken_off=True,
            factor=Decimal("0.5"),
        )
        assert (booked.cost_nano, booked.provider_cost_nano) == (0, 5)

    def test_is_exact_from_a_reported_usage_of_zeros(self) -> None:
        booked = charge_for(Usage(), self.SEEN, self.PRICE, finish_reason="stop", broken_off=False)
        assert (booked.state, booked.cost_nano) == (CostState.EXACT, 0)

    def test_is_exact_where_the_usage_came_before_the_reply_broke_off(self) -> None:
        reported = Usage(input_tokens=10, output_tokens=5)
        booked = charge_for(reported, self.SEEN, self.PRICE, finish_reason="stop", broken_off=True)
        assert (booked.state, booked.cost_nano) == (CostState.EXACT, 15)

    def test_is_estimated_from_what_was_seen_of_a_broken_reply(self) -> None:
        booked = charge_for(None, self.SEEN, self.PRICE, finish_reason=None, broken_off=True)
        assert (booked.state, booked.usage) == (CostState.ESTIMATED, self.SEEN)
        assert booked.cost_nano == 5

    def test_is_unknown_and_nothing_where_a_reply_ended_without_usage(self) -> None:
        booked = charge_for(None, self.SEEN, self.PRICE, finish_reason="stop", broken_off=False)
        assert booked.state is CostState.UNKNOWN
        assert (booked.cost_nano, booked.provider_cost_nano, booked.cost) == (0, None, None)

    def test_has_no_images_in_it_unless_they_are_told(self) -> None:
        price = Price(replace(flat("0.000000001"), image=Decimal(1)))
        booked = charge_for(self.SEEN, self.SEEN, price, finish_reason="stop", broken_off=False)
        assert booked.cost_nano == 5

    def test_is_nothing_for_a_broken_reply_that_failed(self) -> None:
        booked = charge_for(None, self.SEEN, self.PRICE, finish_reason="error", broken_off=True)
        assert booked.state is CostState.ESTIMATED
        assert (booked.cost_nano, booked.provider_cost_nano) == (0, 5)

    def test_is_nothing_for_a_reply_without_output_and_without_an_end(self) -> None:
        reported = Usage(input_tokens=10)
        booked = charge_for(reported, self.SEEN, self.PRICE, finish_reason=None, broken_off=False)
        assert (booked.cost_nano, booked.provider_cost_nano) == (0, 10)

    def test_shows_what_was_seen_where_its_cost_is_unknown(self) -> None:
        booked = charge_for(None, self.SEEN, self.PRICE, finish_reason="stop", broken_off=False)
        assert booked.usage == self.SEEN

    def test_is_nothing_for_a_failed_reply_that_the_provider_bills(self) -> None:
        reported = Usage(input_tokens=10, output_tokens=5)
        booked = charge_for(
            reported, self.SEEN, self.PRICE, finish_reason="error", broken_off=False
        )
        assert (booked.cost_nano, booked.provider_cost_nano) == (0, 15)
        assert booked.cost == Cost(0, 0, 0)


@given(usages)
def test_the_total_is_the_sum_of_the_classes(usage: Usage) -> None:
    classes = [getattr(usage, field.name) for field in fields(usage) if field.name in CLASSES]
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
