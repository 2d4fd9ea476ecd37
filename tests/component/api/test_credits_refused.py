"""Bodies of `POST /credits` that are refused, each with the path of the field."""

import pytest

from tests.component.api.conftest import Acme, message

NO_NUMBER = "amount: must be a number of credits, such as 12.5."
NOT_POSITIVE = "amount: the amount must be a positive number of credits."
TOO_FINE = "amount: the amount is finer than a billionth of a credit."
TOO_LARGE = "amount: the amount is too large."
OUT_OF_BOUNDS = "amount: the amount is too large or too small."
WRONG_AMOUNTS = {
    "0": NOT_POSITIVE,
    "0.0": NOT_POSITIVE,
    '"0"': NOT_POSITIVE,
    "-1": NOT_POSITIVE,
    '"-1"': NOT_POSITIVE,
    "0.0000000001": OUT_OF_BOUNDS,
    '"0.0000000001"': TOO_FINE,
    "1.0000000001": TOO_FINE,
    "1e-999999999": OUT_OF_BOUNDS,
    "1e999999999": OUT_OF_BOUNDS,
    "1e99999999999999999999": OUT_OF_BOUNDS,
    "9" * 5_000: OUT_OF_BOUNDS,
    "1e18": TOO_LARGE,
    '"99999999999999999999"': TOO_LARGE,
    '"1e3"': NO_NUMBER,
    '"1_000"': NO_NUMBER,
    '" 1"': NO_NUMBER,
    '"\u0661"': NO_NUMBER,
    '"."': NO_NUMBER,
    '""': NO_NUMBER,
    "true": NO_NUMBER,
    "null": NO_NUMBER,
    "NaN": NO_NUMBER,
    "Infinity": NO_NUMBER,
    "[1]": NO_NUMBER,
}
WRONG_FIELDS = [
    ({}, "amount: is required."),
    (
        {"amount": 1, "kind": "usage"},
        "kind: Input should be 'purchase', 'grant', 'refund' or 'adjustment'.",
    ),
    ({"amount": 1, "note": "x" * 501}, "note: String should have at most 500 characters."),
    ({"amount": 1, "note": "a\0b"}, "note: must not contain the character U+0000."),
    ({"amount": 1, "currency": "EUR"}, "currency: is not a known field."),
    ({"amount": 1, "account_id": ""}, "account_id: String should have at least 1 character."),
]


async def test_a_wrong_amount(acme: Acme, subtests: pytest.Subtests) -> None:
    for amount, text in WRONG_AMOUNTS.items():
        with subtests.test(amount=amount):
            body = f'{{"amount": {amount}}}'.encode()
            assert message(await acme.operator.post("/credits", content=body), 400) == text


async def test_a_wrong_field(acme: Acme, subtests: pytest.Subtests) -> None:
    for body, text in WRONG_FIELDS:
        with subtests.test(body=body):
            assert message(await acme.operator.post("/credits", json=body), 400) == text


async def test_an_idempotency_key_of_the_wrong_length(
    acme: Acme, subtests: pytest.Subtests
) -> None:
    for key, status in [("", 400), ("x", 201), ("x" * 255, 201), ("x" * 256, 400)]:
        with subtests.test(length=len(key)):
            reply = await acme.operator.post(
                "/credits", json={"amount": 1}, headers={"Idempotency-Key": key}
            )
            assert reply.status_code == status
