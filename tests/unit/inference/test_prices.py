"""List prices beside the calculator of the package that they come from."""

from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal

import pytest
from genai_prices import Usage as ListedUsage
from genai_prices.data_snapshot import get_snapshot

from tests.support.seams.accounting import FREE, Rates, Usage, cost, rates_for
from tests.support.seams.inference import configured_price, list_price
from tollhouse.settings.sections import PricingSettings, ProviderSettings

NOW = datetime(2026, 3, 12, 10, 30, tzinfo=UTC)
OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
ADDRESSES = {
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "google": GOOGLE,
    "deepseek": "https://api.deepseek.com/v1",
    "mistral": "https://api.mistral.ai/v1",
    "groq": "https://api.groq.com/openai/v1",
    "perplexity": "https://api.perplexity.ai",
    "x-ai": "https://api.x.ai/v1",
}
USAGES = [
    Usage(input_tokens=1000, output_tokens=500),
    Usage(input_tokens=90_000, cache_read_tokens=40_000, output_tokens=7),
    Usage(150_001, 100_000, 2_000, 0, 33_333, reasoning_tokens=3),
    Usage(300_000, 1, 5, 7, 1),
]


def at(base_url: str | None) -> ProviderSettings:
    kind = "simulated" if base_url is None else "openai_compatible"
    return ProviderSettings(slug="p", kind=kind, base_url=base_url)  # type: ignore[arg-type]


def listed(model: str, base_url: str) -> Rates:
    price = list_price(model, at(base_url), NOW)
    assert price is not None
    return price.rates


def per_million(*prices: str) -> list[Decimal]:
    return [Decimal(price) / 1_000_000 for price in prices]


@pytest.mark.parametrize(
    ("model", "base_url", "prompt", "completion", "cache_read"),
    [
        ("gpt-4.1", OPENAI, "2", "8", "0.5"),
        ("claude-sonnet-4-5", ANTHROPIC, "3", "15", "0.3"),
        ("gemini-2.5-pro", GOOGLE, "1.25", "10", "0.125"),
        ("GPT-4.1", OPENAI, "2", "8", "0.5"),
    ],
)
def test_a_known_model_has_its_list_price(
    model: str, base_url: str, prompt: str, completion: str, cache_read: str
) -> None:
    rates = listed(model, base_url)
    wanted = per_million(prompt, completion, cache_read)
    assert [rates.prompt, rates.completion, rates.cache_read] == wanted


def test_writing_to_a_cache_has_its_own_prices() -> None:
    rates = listed("claude-sonnet-4-5", ANTHROPIC)
    assert [rates.cache_write, rates.cache_write_1h] == per_million("3.75", "6")


def test_a_cache_without_a_price_of_its_own_costs_the_input() -> None:
    rates = listed("gpt-4.1", OPENAI)
    assert rates.cache_write == rates.cache_write_1h == rates.prompt


def test_a_tier_holds_for_the_whole_request_beyond_its_start() -> None:
    price = list_price("claude-sonnet-4-5", at(ANTHROPIC), NOW)
    assert price is not None
    assert [tier.above_tokens for tier in price.tiers] == [200_000]
    below = rates_for(price, Usage(input_tokens=100_000, cache_read_tokens=100_000))
    above = rates_for(price, Usage(input_tokens=100_000, cache_read_tokens=100_001))
    assert [below.prompt, above.prompt, above.completion] == per_million("3", "6", "22.5")


@pytest.mark.parametrize("provider", ADDRESSES)
def test_every_listed_model_costs_what_the_package_says(provider: str) -> None:
    snapshot, base_url, compared = get_snapshot(), ADDRESSES[provider], 0
    [models] = [each.models for each in snapshot.providers if each.id == provider]
    for model in models:
        price = list_price(model.id, at(base_url), NOW)
        if price is None:
            continue
        for usage in USAGES:
            theirs = snapshot.calc(_listed(usage), model.id, None, base_url, NOW).total_price
            nano = int((theirs * 10**9).quantize(Decimal(1), ROUND_HALF_UP))
            assert cost(usage, price).total_nano == nano, model.id
            compared += 1
    assert compared >= 4


def _listed(usage: Usage) -> ListedUsage:
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    return ListedUsage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.output_tokens,
        output_reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=written,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
    )


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("no-such-model", OPENAI),
        ("gpt-4.1", "http://127.0.0.1:11434/v1"),
        ("gpt-4.1", "https://llm.acme.example/v1"),
        ("gpt-4.1", None),
        ("", OPENAI),
        ("x" * 10_000, OPENAI),
        ("whisper-large-v3", ADDRESSES["groq"]),
    ],
)
def test_what_the_list_does_not_price_has_no_price(model: str, base_url: str | None) -> None:
    assert list_price(model, at(base_url), NOW) is None


# Prices from the settings


def test_free_is_free() -> None:
    price = configured_price("free")
    assert price == FREE
    assert price.is_free


def test_a_price_of_zero_is_free_too() -> None:
    zero = PricingSettings(prompt=Decimal(0), completion=Decimal(0))
    assert configured_price(zero).is_free


def test_a_price_with_a_fee_for_the_request_is_not_free() -> None:
    fee = PricingSettings(prompt=Decimal(0), completion=Decimal(0), request=Decimal("0.01"))
    assert not configured_price(fee).is_free


def given(**prices: str) -> Rates:
    exact = {name: Decimal(price) for name, price in prices.items()}
    return configured_price(PricingSettings(**exact)).rates  # type: ignore[arg-type]


def test_a_cache_price_that_is_left_out_is_the_prompts() -> None:
    assert given(prompt="1e-6", completion="2e-6") == Rates(
        prompt=Decimal("1e-6"),
        completion=Decimal("2e-6"),
        cache_read=Decimal("1e-6"),
        cache_write=Decimal("1e-6"),
        cache_write_1h=Decimal("1e-6"),
    )


def test_an_hours_cache_costs_what_the_usual_one_costs_unless_given() -> None:
    rates = given(prompt="1e-6", completion="2e-6", input_cache_write="3e-6")
    assert (rates.cache_write, rates.cache_write_1h) == (Decimal("3e-6"), Decimal("3e-6"))


def test_a_price_that_is_given_as_zero_is_zero() -> None:
    rates = given(
        prompt="1e-6",
        completion="2e-6",
        input_cache_read="0",
        input_cache_write="0",
        input_cache_write_1h="0",
    )
    assert (rates.cache_read, rates.cache_write, rates.cache_write_1h) == (0, 0, 0)


def test_every_price_is_taken_over() -> None:
    assert given(
        prompt="1",
        completion="2",
        input_cache_read="3",
        input_cache_write="4",
        input_cache_write_1h="5",
        request="6",
        reasoning="7",
        image="8",
    ) == Rates(*(Decimal(number) for number in range(1, 9)))


def test_reasoning_costs_what_the_completion_costs_unless_given() -> None:
    rates = given(prompt="1e-6", completion="2e-6")
    assert (rates.reasoning, rates.units.reasoning) == (None, rates.units.completion)
    assert given(prompt="1e-6", completion="2e-6", reasoning="0").units.reasoning == 0


def test_a_price_of_images_alone_is_not_free() -> None:
    image = PricingSettings(prompt=Decimal(0), completion=Decimal(0), image=Decimal("0.01"))
    assert not configured_price(image).is_free
