from decimal import Decimal

import pytest

from tests.support.seams.accounting import Price, Rates, Tier
from tests.support.seams.inference import plain, price_texts, pricing_reply


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1E-7", "0.0000001"),
        ("0.000001", "0.000001"),
        ("0.00000010", "0.0000001"),
        ("0", "0"),
        ("0E-9", "0"),
        ("100", "100"),
        ("1E+2", "100"),
        ("1.50", "1.5"),
    ],
)
def test_a_price_has_no_exponent_and_no_trailing_zeros(amount: str, text: str) -> None:
    assert plain(Decimal(amount)) == text


def test_an_estimate_shows_a_price_as_the_catalogue_does() -> None:
    rates = Rates(
        prompt=Decimal("0.001"),
        completion=Decimal("0.002"),
        cache_read=Decimal("0.0001"),
        cache_write=Decimal("0.003"),
        cache_write_1h=Decimal("0.004"),
        reasoning=Decimal("0.005"),
        image=Decimal("0.006"),
    )
    price = Price(rates, (Tier(1000, rates),))
    assert list(price_texts(price).items()) == list(pricing_reply(price).model_dump().items())
