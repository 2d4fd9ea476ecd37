"""`/accounts`: who pays."""

import pytest

from tests.component.api.conftest import Acme, message, shown
from tests.support.clock import FakeClock


class TestCreate:
    async def test_makes_it_with_a_default_workspace(self, acme: Acme) -> None:
        reply = await acme.operator.post("/accounts", json={"name": "New"})

        assert reply.status_code == 201
        made = reply.json()
        account_id = made["data"]["id"]
        assert made["data"] == shown("account", account=account_id)
        workspaces = await acme.operator.get("/workspaces", params={"account_id": account_id})
        assert [each["id"] for each in workspaces.json()["data"]] == [made["workspace_id"]]


class TestList:
    async def test_shows_an_operator_all_oldest_first(self, acme: Acme, clock: FakeClock) -> None:
        clock.advance(1)
        await acme.operator.post("/accounts", json={"name": "Newer"})

        reply = await acme.operator.get("/accounts")

        assert [each["name"] for each in reply.json()["data"]] == ["Acme", "Newer"]
        assert reply.json()["total_count"] == 2

    @pytest.mark.usefixtures("acme")
    async def test_shows_anybody_else_their_own(self, other: Acme) -> None:
        reply = await other.management.get("/accounts")

        assert [each["id"] for each in reply.json()["data"]] == [other.account_id]
        assert reply.json()["total_count"] == 1


class TestChange:
    @pytest.mark.parametrize(
        "field",
        [
            {"type": "prepaid"},
            {"free_limits_exempt": False},
            {"intern_programme": True},
            {"vault_writes": False},
        ],
    )
    async def test_refuses_that_to_all_but_operators(
        self, acme: Acme, field: dict[str, object]
    ) -> None:
        path = f"/accounts/{acme.account_id}"

        reply = await acme.management.patch(path, json={"name": "Mine", **field})

        assert message(reply, 403) == (
            f"Only an operator can change {next(iter(field))} of an account."
        )
        assert (await acme.management.get(path)).json()["data"]["name"] == "Acme"

    async def test_who_remembers_it_hears_of_a_change_that_is_durable(
        self, acme: Acme, stale: list[str | None]
    ) -> None:
        path = f"/accounts/{acme.account_id}"
        message(await acme.management.patch(path, json={"type": "invoice"}), 403)
        message(await acme.operator.patch("/accounts/nobody", json={"type": "invoice"}), 404)
        assert stale == []

        await acme.operator.patch(path, json={"type": "invoice"})

        assert stale == [acme.account_id]
