"""What is sent to the control plane and refused, each with the path of the field."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml

from tests.component.api.conftest import Acme, message
from tollhouse.kernel.money import MAX_NANO, format_credits
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import limits

ANN = {"name": "Ann", "email": "ann@acme.example"}
FILE = Path(__file__).with_name("refused.yaml")
CASES: dict[str, Any] = yaml.load(FILE.read_bytes(), yaml.CSafeLoader)
OPERATIONS = CASES["operations"]


def rows(listed: list[Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Return rows of the file, with those of the groups that it names."""
    for each in listed:
        if isinstance(each, str):
            yield from rows(CASES["groups"][each])
        else:
            wrong, said = each
            yield {name: at_length(value) for name, value in wrong.items()}, said


def at_length(value: object) -> object:
    repeated = re.fullmatch(r"(.*)(.)\*(\d+)", value) if isinstance(value, str) else None
    return repeated[1] + repeated[2] * int(repeated[3]) if repeated else value


@pytest.mark.exact
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_wrong_field_is_refused_by_its_path(
    acme: Acme, operation: str, subtests: pytest.Subtests
) -> None:
    (method, path), case = operation.split(), OPERATIONS[operation]
    names = {"account": acme.account_id, "key": acme.api_key.key.hash}
    if "{user}" in path:
        made = await acme.management.post("/users", json=ANN)
        names["user"] = made.json()["data"]["id"]
    for wrong, text in rows(case["refused"]):
        with subtests.test(wrong=wrong):
            sent: Any = {"params" if method == "GET" else "json": case["given"] | wrong}
            reply = await acme.operator.request(method, path.format(**names), **sent)
            said = message(reply, 400)
            assert said == text if text.endswith(".") else said.startswith(text)


# Amounts, as they are written in JSON

NO_AMOUNTS = {
    "must be a number of credits, such as 12.5.": (
        *('"1e3"', '"1_000"', '" 1"', '"\u0661"', '"."', '""', '"1,5"', '"ten"', '"NaN"'),
        *("true", "NaN", "Infinity", "-Infinity", "[1]"),
    ),
    "the amount is too large or too small.": (
        *("1e400", "1e99999999999999999999", "1e999999999", "9" * 5_000),
        *("0.0000000001", "1e-400", "1e-999999999", "1e-99999999999999999999"),
    ),
    "the amount is finer than a billionth of a credit.": ('"0.0000000001"', "12.0000000001"),
    "the amount is too large.": (
        *("1e18", "9999999999999", '"9999999999999"', f'"{format_credits(MAX_NANO + 1)}"'),
    ),
}
KINDS = ("purchase", "grant", "refund", "adjustment")


def credit_of(kind: str) -> str:
    """Return what is beside an amount of that kind."""
    return f'"kind": "{kind}", "note": "n"'


@pytest.mark.exact
@pytest.mark.parametrize(
    ("method", "path", "field", "beside"),
    [
        *(("POST", "/credits", "amount", credit_of(kind)) for kind in KINDS),
        ("POST", "/keys", "limit", '"name": "ci"'),
        ("PATCH", "/keys/{key}", "limit", '"disabled": false'),
    ],
)
async def test_what_is_no_amount_is_refused_and_changes_nothing(
    acme: Acme,
    database: Database,
    subtests: pytest.Subtests,
    method: str,
    path: str,
    field: str,
    beside: str,
) -> None:
    path = path.format(key=acme.api_key.key.hash)
    for text, amounts in NO_AMOUNTS.items():
        for amount in amounts:
            with subtests.test(amount=amount[:40]):
                body = f'{{{beside}, "{field}": {amount}}}'.encode()
                reply = await acme.operator.request(method, path, content=body)
                assert message(reply, 400) == f"{field}: {text}"
    assert (await acme.management.get("/credits")).json()["data"]["total_credits"] == 0
    async with database.reading() as read:
        assert (await read.execute(sa.select(limits))).all() == []


@pytest.mark.exact
async def test_an_amount_has_the_sign_of_its_kind(acme: Acme, subtests: pytest.Subtests) -> None:
    not_positive = ("0", "0.0", "-0", "-1", '"0"', '"-0.5"', '"0.000"', "-1e-9")
    wrong = [
        *product(KINDS[:3], not_positive, ["must be a positive number of credits"]),
        *product(KINDS[3:], ("0", "-0.0", '"0.00"'), ["must not be zero"]),
        *product(KINDS, ["-1e400"], ["the amount is too large or too small."]),
    ]
    for kind, amount, text in wrong:
        with subtests.test(kind=kind, amount=amount):
            body = f'{{{credit_of(kind)}, "amount": {amount}}}'.encode()
            assert text in message(await acme.operator.post("/credits", content=body), 400)
    for amount, text in (
        *((each, "limit: must not be negative.") for each in ("-1", "-0.000000001", "-1e400")),
        ('"-1"', "limit: a limit must not be negative."),
    ):
        with subtests.test(limit=amount):
            body = f'{{"name": "ci", "limit": {amount}}}'.encode()
            assert message(await acme.operator.post("/keys", content=body), 400) == text


@pytest.mark.exact
async def test_an_idempotency_key_of_the_wrong_length(
    acme: Acme, subtests: pytest.Subtests
) -> None:
    for key, status in [("", 400), ("x", 201), ("x" * 255, 201), ("x" * 256, 400)]:
        with subtests.test(length=len(key)):
            reply = await acme.operator.post(
                "/credits", json={"amount": 1}, headers={"Idempotency-Key": key}
            )
            assert reply.status_code == status
