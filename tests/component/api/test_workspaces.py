"""`/workspaces`: the scopes inside an account."""

import uuid
from collections.abc import Callable
from typing import Any

from tests.component.api.conftest import Acme, Client, message, shown
from tests.support.builders import OPERATOR
from tests.support.clock import FakeClock
from tests.support.seams.identity import IdentityService, KeyKind, NewKey
from tollhouse.storage.database import Database

LAB = {"name": "Lab", "slug": "lab"}
EVERYTHING = shown("preferences_of_a_workspace")


async def make(client: Client, **body: Any) -> dict[str, Any]:
    reply = await client.post("/workspaces", json={**LAB, **body})
    assert reply.status_code == 201, reply.text
    return reply.json()["data"]


class TestCreate:
    async def test_shows_every_field_with_its_default(self, acme: Acme) -> None:
        reply = await acme.management.post("/workspaces", json=LAB)

        assert reply.status_code == 201
        data = reply.json()["data"]
        own = uuid.UUID(data.pop("id"))
        assert data.pop("default_guardrail_id") == str(uuid.uuid5(own, "default guardrail"))
        assert data == shown("workspace")

    async def test_names_the_user_whose_key_made_it(
        self,
        acme: Acme,
        database: Database,
        identity: IdentityService,
        connect: Callable[[str], Client],
    ) -> None:
        async with database.writing() as write:
            user = await identity.create_user(write, acme.account_id, "Ann", None)
            wanted = NewKey("ann", KeyKind.MANAGEMENT, creator_user_id=user.id)
            key = await identity.create_key(write, OPERATOR, acme.account_id, wanted)

        made = await make(connect(key.text))

        assert made["created_by"] == user.id

    async def test_refuses_a_slug_that_is_taken(self, acme: Acme, other: Acme) -> None:
        await make(acme.management)

        reply = await acme.management.post("/workspaces", json=LAB)

        assert message(reply, 400) == "slug: 'lab' is taken in this account."
        await make(other.management)


class TestGet:
    async def test_finds_it_by_id_and_by_slug(self, acme: Acme) -> None:
        by_id = await acme.management.get(f"/workspaces/{acme.workspace_id}")
        by_slug = await acme.management.get("/workspaces/default")

        assert by_id.status_code == 200
        assert by_id.json() == by_slug.json()
        assert by_id.json()["data"]["name"] == "Default"

        await make(acme.management, slug=acme.workspace_id)
        assert (
            await acme.management.get(f"/workspaces/{acme.workspace_id}")
        ).json() == by_id.json()


class TestChange:
    async def test_changes_what_is_given_and_leaves_the_rest(
        self, acme: Acme, clock: FakeClock
    ) -> None:
        made = await make(acme.management, **EVERYTHING)
        clock.advance(1)

        reply = await acme.management.patch(
            "/workspaces/lab", json={"name": "Laboratory", "description": None}
        )

        assert reply.status_code == 200
        assert reply.json()["data"] == {
            **made,
            "name": "Laboratory",
            "description": None,
            "updated_at": "2026-03-12T10:30:01.000Z",
        }

    async def test_null_clears_what_may_be_null(self, acme: Acme) -> None:
        await make(acme.management, **EVERYTHING)
        cleared = [
            "default_text_model",
            "default_image_model",
            "default_provider_sort",
            "io_logging_api_key_ids",
            "disabled_server_tools",
        ]

        data = (await acme.management.patch("/workspaces/lab", json=dict.fromkeys(cleared))).json()[
            "data"
        ]

        assert {data[name] for name in cleared} == {None}
        assert data["io_logging_sampling_rate"] == 0.25
        none = await acme.management.patch("/workspaces/lab", json={"disabled_server_tools": []})
        assert none.json()["data"]["disabled_server_tools"] is None


class TestDelete:
    async def test_refuses_one_with_keys_until_they_are_deleted(self, acme: Acme) -> None:
        await make(acme.management)
        key = await acme.management.post("/keys", json={"name": "ci", "workspace_id": "lab"})

        refused = await acme.management.delete("/workspaces/lab")

        assert message(refused, 400) == "The workspace still has API keys; delete them first."
        await acme.management.delete(f"/keys/{key.json()['data']['hash']}")
        assert (await acme.management.delete("/workspaces/lab")).status_code == 200

    async def test_refuses_the_default_one_without_confirmation(self, local: Client) -> None:
        account = (await local.post("/accounts", json={"name": "Bare"})).json()
        path = f"/workspaces/{account['workspace_id']}"
        query = {"account_id": account["data"]["id"]}

        refused = await local.delete(path, params=query)

        assert message(refused, 400) == (
            "This is the default workspace; confirm with confirm_default_workspace_deletion."
        )
        confirmed = {**query, "confirm_default_workspace_deletion": "true"}
        assert (await local.delete(path, params=confirmed)).json() == {"deleted": True}
        keys = await local.get("/keys", params={"account_id": account["data"]["id"]})
        assert message(keys, 404).startswith("The account has no default workspace")
