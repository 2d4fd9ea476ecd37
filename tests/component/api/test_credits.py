"""`/credits`: what an account has, and what an operator brings in."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.component.api.conftest import Acme, Client, message
from tests.support.builders import generation_record


async def total(client: Client, **query: Any) -> float:
    return (await client.get("/credits", params=query)).json()["data"]["total_credits"]


class TestAdd:
    async def test_answers_with_the_posting(self, acme: Acme) -> None:
        reply = await acme.operator.post("/credits", json={"amount": "12.5", "note": "invoice 7"})

        assert reply.status_code == 201
        data = reply.json()["data"]
        assert data.pop("id")
        assert data == {
            "account_id": acme.account_id,
            "kind": "purchase",
            "amount": 12.5,
            "note": "invoice 7",
            "generation_id": None,
            "created_at": "2026-03-12T10:30:00.000Z",
        }

    async def test_takes_an_amount_as_text_or_as_an_exact_number(
        self, acme: Acme, subtests: pytest.Subtests
    ) -> None:
        # A float of the last one's size has no room for its last digit.
        amounts = {
            '"12.5"': "12.5",
            '"0.000000001"': "0.000000001",
            "3": "3",
            "1.5e2": "150",
            "100000000.000000001": "100000000.000000001",
        }
        for amount, added in amounts.items():
            with subtests.test(amount=amount):
                await acme.operator.post("/credits", content=f'{{"amount": {amount}}}')
                statement = (await acme.management.get("/ledger/statement")).json()["data"]
                assert statement["lines"][-1]["amount"] == added

    async def test_the_same_key_is_another_one_in_another_account(
        self, acme: Acme, other: Acme
    ) -> None:
        for client in (acme.operator, other.operator):
            await client.post("/credits", json={"amount": 5}, headers={"Idempotency-Key": "k1"})

        assert await total(acme.management) == await total(other.management) == 5.0

    async def test_an_adjustment_names_a_generation_of_its_account(
        self, acme: Acme, other: Acme, book: Callable[..., Any]
    ) -> None:
        record = generation_record(account_id=acme.account_id)
        theirs = generation_record(id="gen-theirs", account_id=other.account_id)
        await book(record, theirs)
        body = {"amount": 1, "kind": "adjustment", "note": "n", "generation_id": record.id}

        reply = await acme.operator.post("/credits", json=body)
        assert reply.json()["data"]["generation_id"] == record.id
        for strange in ("gen-1", theirs.id):
            refused = await acme.operator.post("/credits", json={**body, "generation_id": strange})
            assert message(refused, 400) == "generation_id: no such generation in this account."
