"""`/ledger/...` and `/activity`: who may see what, and what they are asked for."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.component.api.conftest import Acme, Client, message, shown
from tests.support.builders import charge, generation_record
from tests.support.seams.accounting import CostState, GenerationRecord
from tests.support.tables import tables

CASES = tables(__file__)

Book = Callable[..., Any]


def record(of: Acme, number: int = 1, **fields: Any) -> GenerationRecord:
    facts: dict[str, Any] = {
        "id": f"gen-{number}",
        "account_id": of.account_id,
        "workspace_id": of.workspace_id,
        "key_hash": of.api_key.key.hash,
        **fields,
    }
    return generation_record(**facts)


def unknown(of: Acme, number: int) -> GenerationRecord:
    return record(of, number, charge=charge(0, state=CostState.UNKNOWN, provider_cost_nano=None))


class TestVerify:
    async def test_says_that_the_books_are_right(self, acme: Acme, book: Book) -> None:
        await acme.operator.post("/credits", json={"amount": 10})
        await book(record(acme, cost_nano=300_000_000))

        reply = await acme.operator.get("/ledger/verify")

        assert reply.json()["data"] == {
            "clean": True,
            "postings": 2,
            "generations": 1,
            "balances": {"customers": "9.7", "purchases": "-10", "revenue": "0.3"},
            "differences": [],
            "more": False,
        }


class TestStatement:
    async def test_goes_from_the_opening_to_the_closing_balance(
        self, acme: Acme, book: Book
    ) -> None:
        bought = await acme.operator.post("/credits", json={"amount": "2.5", "note": "n"})
        await book(record(acme, cost_nano=1), record(acme, 2, cost_nano=2))

        data = (await acme.management.get("/ledger/statement")).json()["data"]

        assert data["account_id"] == acme.account_id
        assert (data["opening_balance"], data["closing_balance"]) == ("0", "2.499999997")
        assert (data["change"], data["total_count"]) == ("2.499999997", 2)
        assert data["lines"] == shown("statement", posting=bought.json()["data"]["id"])

    async def test_names_each_generation_where_that_is_asked(self, acme: Acme, book: Book) -> None:
        await book(record(acme, cost_nano=1), record(acme, 2, cost_nano=2))

        query = {"detail": True, "offset": 1, "limit": 1}
        data = (await acme.management.get("/ledger/statement", params=query)).json()["data"]

        assert [(x["generation_id"], x["balance"]) for x in data["lines"]] == [
            ("gen-2", "-0.000000003")
        ]
        assert data["total_count"] == 2

    @pytest.mark.parametrize(("query", "amounts"), CASES["takes_days_and_times"])
    async def test_takes_days_and_times(
        self, acme: Acme, query: dict[str, str], amounts: int
    ) -> None:
        await acme.operator.post("/credits", json={"amount": 1})
        data = (await acme.management.get("/ledger/statement", params=query)).json()["data"]
        assert len(data["lines"]) == amounts

    async def test_of_another_account_is_for_operators(self, acme: Acme, other: Acme) -> None:
        query = {"account_id": other.account_id}
        refused = await acme.management.get("/ledger/statement", params=query)
        assert message(refused, 404) == "No such account."
        read = await acme.operator.get("/ledger/statement", params=query)
        assert read.json()["data"]["account_id"] == other.account_id
        assert message(await acme.api.get("/ledger/statement"), 403)


class TestUnknown:
    async def test_shows_an_operator_everybodys_and_a_manager_its_own(
        self, acme: Acme, other: Acme, book: Book
    ) -> None:
        await book(unknown(acme, 1), unknown(other, 2), record(acme, 3))

        async def ids(client: Client, **query: str) -> list[str]:
            reply = await client.get("/ledger/unknown", params=query)
            return [each["id"] for each in reply.json()["data"]]

        assert sorted(await ids(acme.operator)) == ["gen-1", "gen-2"]
        assert await ids(acme.operator, account_id=other.account_id) == ["gen-2"]
        assert await ids(acme.management) == ["gen-1"]
        refused = await acme.management.get(
            "/ledger/unknown", params={"account_id": other.account_id}
        )
        assert message(refused, 404) == "No such account."

    async def test_tells_what_the_provider_wants_to_know(self, acme: Acme, book: Book) -> None:
        await book(unknown(acme, 1))
        facts = {"account": acme.account_id, "workspace": acme.workspace_id}
        told = (await acme.management.get("/ledger/unknown")).json()["data"]
        assert told == [shown("unknown_cost", **facts)]

    async def test_leaves_out_what_an_adjustment_settled(self, acme: Acme, book: Book) -> None:
        await book(unknown(acme, 1))
        body = {"amount": "-0.02", "kind": "adjustment", "note": "n", "generation_id": "gen-1"}
        assert (await acme.operator.post("/credits", json=body)).status_code == 201
        assert (await acme.management.get("/ledger/unknown")).json()["data"] == []


class TestActivity:
    async def test_is_that_of_the_last_days(self, acme: Acme, book: Book) -> None:
        long_ago = datetime(2026, 2, 10, tzinfo=UTC)
        first = datetime(2026, 2, 11, tzinfo=UTC)
        await book(
            record(acme, 1, cost_nano=500_000_000),
            record(acme, 2, created_at=first),
            record(acme, 3, created_at=long_ago),
        )

        reply = (await acme.management.get("/activity")).json()

        assert reply["total_count"] == 2
        assert [row["date"] for row in reply["data"]] == ["2026-03-12", "2026-02-11"]
        assert reply["data"][0] == shown("activity")

    @pytest.mark.parametrize(("query", "rows"), CASES["may_be_that_of_other_days"])
    async def test_may_be_that_of_other_days(
        self, acme: Acme, book: Book, query: dict[str, str], rows: int
    ) -> None:
        long_ago = datetime(2026, 2, 10, tzinfo=UTC)
        await book(record(acme, 1), record(acme, 2, created_at=long_ago))
        reply = await acme.management.get("/activity", params=query)
        assert len(reply.json()["data"]) == rows

    async def test_may_be_that_of_a_key_a_workspace_or_a_user(self, acme: Acme, book: Book) -> None:
        await book(record(acme, 1))
        key = acme.api_key.key.hash
        for query, found in (
            ({"api_key_hash": key, "group_by": "key"}, [key]),
            ({"api_key_hash": "another"}, []),
            ({"workspace_id": acme.workspace_id}, [None]),
            ({"user_id": "nobody"}, []),
        ):
            reply = await acme.management.get("/activity", params=query)
            assert [row["api_key_hash"] for row in reply.json()["data"]] == found
