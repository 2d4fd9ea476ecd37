"""`/keys`: made, listed, changed and revoked with a management key."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

from tests.component.api.conftest import Acme, Client, message, shown
from tests.support.clock import FakeClock

ConnectWith = Callable[[str], Client]


async def names(client: Client, **query: Any) -> list[str]:
    reply = await client.get("/keys", params=query)
    assert reply.status_code == 200, reply.text
    return [key["name"] for key in reply.json()["data"]]


class TestCreate:
    async def test_shows_the_text_once_and_the_whole_key(self, acme: Acme) -> None:
        reply = await acme.management.post("/keys", json={"name": "ci"})

        assert reply.status_code == 201
        made = reply.json()
        text = made["key"]
        assert text.startswith("sk-th-v1-")
        assert made["data"] == shown(
            "key",
            hash=sha256(text.encode()).hexdigest(),
            label=f"sk-th-v1-{text[9:12]}...{text[-3:]}",
            account=acme.account_id,
            workspace=acme.workspace_id,
        )
        read = await acme.management.get(f"/keys/{made['data']['hash']}")
        assert read.json() == {"data": made["data"]}
        assert text not in read.text

    async def test_takes_nulls_and_defaults_that_say_nothing(self, acme: Acme) -> None:
        body = {
            "name": "ci",
            "limit": None,
            "limit_reset": None,
            "include_byok_in_limit": False,
            "expires_at": None,
            "creator_user_id": None,
            "external": None,
        }

        assert (await acme.management.post("/keys", json=body)).status_code == 201

    async def test_names_its_creator(self, acme: Acme) -> None:
        user = (await acme.management.post("/users", json={"name": "Ann"})).json()["data"]["id"]

        reply = await acme.management.post("/keys", json={"name": "ci", "creator_user_id": user})

        assert reply.json()["data"]["creator_user_id"] == user

    async def test_an_operator_makes_an_operators_key(
        self, acme: Acme, connect: ConnectWith
    ) -> None:
        body = {"name": "root", "kind": "management", "operator": True}

        made = await acme.operator.post("/keys", json=body)

        assert made.json()["data"]["operator"] is True
        reply = await connect(made.json()["key"]).post("/accounts", json={"name": "New"})
        assert reply.status_code == 201

    async def test_refuses_a_user_and_a_workspace_of_another_account(
        self, acme: Acme, other: Acme
    ) -> None:
        user = (await other.management.post("/users", json={"name": "Eve"})).json()["data"]["id"]
        there = {"workspace_id": other.workspace_id}
        path = f"/keys/{acme.api_key.key.hash}"

        by_user = await acme.operator.post("/keys", json={"name": "x", "creator_user_id": user})
        made = await acme.operator.post("/keys", json={"name": "x", **there})
        moved = await acme.operator.patch(path, json=there)

        assert message(by_user, 400) == "creator_user_id: no such user in this account."
        for reply in (made, moved):
            assert message(reply, 400) == "workspace_id: no such workspace in this account."

    async def test_refuses_operators_keys_to_all_but_operators(self, acme: Acme) -> None:
        body = {"name": "root", "kind": "management", "operator": True}

        reply = await acme.management.post("/keys", json=body)

        assert message(reply, 403) == "Only an operator can make an operator's key."

    @pytest.mark.parametrize("method", ["PATCH", "DELETE"])
    async def test_refuses_to_change_operators_keys_to_all_but_operators(
        self, acme: Acme, method: str
    ) -> None:
        body = {"name": "root", "kind": "management", "operator": True}
        made = (await acme.operator.post("/keys", json=body)).json()["data"]
        change = {"json": {"disabled": True}} if method == "PATCH" else {}
        reply = await acme.management.request(method, f"/keys/{made['hash']}", **change)
        assert message(reply, 403) == "Only an operator can change an operator's key."


class TestList:
    async def test_shows_the_keys_of_the_default_workspace_newest_first(
        self, acme: Acme, clock: FakeClock
    ) -> None:
        await acme.management.post("/workspaces", json={"name": "Lab", "slug": "lab"})
        await acme.management.post("/keys", json={"name": "elsewhere", "workspace_id": "lab"})
        clock.advance(1)
        await acme.management.post("/keys", json={"name": "newest"})

        assert (await names(acme.management))[0] == "newest"
        assert "elsewhere" not in await names(acme.management)
        assert await names(acme.management, workspace_id="lab") == ["elsewhere"]

    async def test_hides_expired_keys_unless_asked(self, acme: Acme, clock: FakeClock) -> None:
        await acme.management.post(
            "/keys", json={"name": "short", "expires_at": "2026-03-12T10:30:10Z"}
        )
        assert "short" in await names(acme.management)

        clock.advance(10)

        assert "short" not in await names(acme.management)
        assert "short" in await names(acme.management, include_expired="true")

    async def test_shows_a_hundred_at_a_time(self, acme: Acme, clock: FakeClock) -> None:
        for number in range(100):
            clock.advance(1)
            await acme.management.post("/keys", json={"name": f"key {number}"})

        first, rest = await names(acme.management), await names(acme.management, offset=100)

        assert len(first) == 100
        assert first[0] == "key 99"
        assert sorted(rest) == ["Acme api", "Acme intern", "Acme management", "Acme management"]


class TestChange:
    async def test_moves_it_to_a_workspace_by_its_slug(self, acme: Acme) -> None:
        made = await acme.management.post("/workspaces", json={"name": "Lab", "slug": "lab"})

        reply = await acme.management.patch(
            f"/keys/{acme.api_key.key.hash}", json={"workspace_id": "lab"}
        )

        assert reply.json()["data"]["workspace_id"] == made.json()["data"]["id"]
        assert (await acme.api.get("/key")).json()["data"]["workspace_id"] == (
            made.json()["data"]["id"]
        )


class TestDelete:
    async def test_a_deleted_key_is_refused_from_the_answer_on(self, acme: Acme) -> None:
        assert (await acme.api.get("/key")).status_code == 200

        reply = await acme.management.delete(f"/keys/{acme.api_key.key.hash}")

        assert reply.status_code == 200
        assert reply.json() == {"deleted": True}
        assert message(await acme.api.get("/key"), 401).startswith("Invalid API key")
        message(await acme.management.get(f"/keys/{acme.api_key.key.hash}"), 404)
        assert "Acme api" not in await names(acme.management, include_disabled=True)
