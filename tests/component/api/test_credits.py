"""`/credits`: what an account has, and what an operator brings in."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.component.api.conftest import Acme, Client, message
from tests.support.builders import generation_record


async def total(client: Client, **query: Any) -> float:
    return (await client.get("/credits", params=query)).json()["data"]["total_credits"]


class TestShow:
    async def test_shows_what_came_in_and_what_was_used(
        self, acme: Acme, book: Callable[..., Any]
    ) -> None:
        await acme.operator.post("/credits", json={"amount": "10", "kind": "grant"})
        await acme.operator.post("/credits", json={"amount": "2.5"})
        await book(generation_record(account_id=acme.account_id, cost_nano=300_000_000))

        reply = await acme.management.get("/credits")

        assert reply.status_code == 200
        assert reply.json() == {"data": {"total_credits": 12.5, "total_usage": 0.3}}


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

    async def test_the_same_request_again_changes_nothing(self, acme: Acme) -> None:
        first = await acme.operator.post(
            "/credits", json={"amount": 5}, headers={"Idempotency-Key": "k1"}
        )
        again = await acme.operator.post(
            "/credits", json={"amount": "5.0"}, headers={"Idempotency-Key": "k1"}
        )

        assert again.status_code == first.status_code == 201
        assert again.json() == first.json()
        assert await total(acme.management) == 5.0

    async def test_the_same_key_is_another_one_in_another_account(
        self, acme: Acme, other: Acme
    ) -> None:
        for client in (acme.operator, other.operator):
            await client.post("/credits", json={"amount": 5}, headers={"Idempotency-Key": "k1"})

        assert await total(acme.management) == await total(other.management) == 5.0

    async def test_refuses_another_request_with_the_same_key(self, acme: Acme) -> None:
        headers = {"Idempotency-Key": "k1"}
        await acme.operator.post("/credits", json={"amount": 5}, headers=headers)

        for changed in ({"amount": 6}, {"amount": 5, "kind": "grant"}):
            reply = await acme.operator.post("/credits", json=changed, headers=headers)
            assert message(reply, 409) == (
                "The idempotency key was used before with another amount, kind or generation."
            )
        assert await total(acme.management) == 5.0

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
