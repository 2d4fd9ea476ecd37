from decimal import Decimal

import pytest

from tollhouse.inference.endpoints.model_wire import plain


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
