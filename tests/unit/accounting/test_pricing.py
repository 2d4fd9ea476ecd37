from dataclasses import fields, replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.accounting.pricing import charge_for, cost, no_charge, rates_for
from tollhouse.accounting.types import FREE, Cost, CostState, Price, Rates, Tier, Usage

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

    def test_is_rounded_once_and_not_for_each_class(self) -> None:
        price = Price(flat("0.0000000004"))
        assert cost(Usage(input_tokens=1, output_tokens=1), price) == Cost(1, 0, 0)

    def test_has_a_prompt_and_a_completion_part(self) -> None:
        usage = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=4)
        assert cost(usage, Price(flat("0.000000001", request="0.5"))) == Cost(500_000_007, 3, 4)

    def test_multiplies_token_prices_with_the_factor_and_not_the_request(self) -> None:
        price = Price(flat("0.000000010", request="0.000000100"))
        assert cost(Usage(input_tokens=10), price, Decimal("0.5")) == Cost(150, 50, 0)

    def test_keeps_digits_that_pythons_own_context_would_round(self) -> None:
        half_a_nano_less = Decimal("0.1234567894999999999999999999999999999")
        assert cost(Usage(input_tokens=1), Price(flat(str(half_a_nano_less)))).total_nano == (
            123_456_789
        )

    @given(usages)
    def test_is_nothing_for_a_free_model(self, usage: Usage) -> None:
        assert cost(usage, FREE) == Cost(0, 0, 0)


class TestTiers:
    PRICE = Price(flat("1"), tiers=(Tier(200, flat("2")), Tier(1_000, flat("3"))))

    @pytest.mark.parametrize(
        ("prompt", "credits_a_token"), [(200, 1), (201, 2), (1_000, 2), (1_001, 3)]
    )
    def test_hold_from_one_token_above_their_bound(self, prompt: int, credits_a_token: int) -> None:
        assert rates_for(self.PRICE, Usage(input_tokens=prompt)) == flat(str(credits_a_token))

    def test_count_cached_input_too(self) -> None:
        usage = Usage(input_tokens=100, cache_read_tokens=50, cache_write_1h_tokens=51)
        assert rates_for(self.PRICE, usage) == flat("2")

    def test_do_not_count_output(self) -> None:
        assert rates_for(self.PRICE, Usage(output_tokens=5_000)) == flat("1")

    def test_hold_for_the_whole_request(self) -> None:
        usage = Usage(input_tokens=201, output_tokens=10)
        assert cost(usage, self.PRICE).total_nano == 2 * 211 * 10**9


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
    assert not Price(flat("0", request="0.1")).is_free
