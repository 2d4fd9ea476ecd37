"""`/users`: the people of an account."""

from typing import Any

from tests.component.api.conftest import Acme, Client
from tests.support.clock import FakeClock

ANN = {"name": "Ann", "email": "ann@acme.example"}


async def make(client: Client, **body: Any) -> dict[str, Any]:
    reply = await client.post("/users", json={**ANN, **body})
    assert reply.status_code == 201, reply.text
    return reply.json()["data"]


class TestCreate:
    async def test_shows_every_field(self, acme: Acme) -> None:
        made = await make(acme.management)

        assert made.pop("id")
        assert made == {
            **ANN,
            "account_id": acme.account_id,
            "created_at": "2026-03-12T10:30:00.000Z",
            "updated_at": None,
        }


class TestList:
    async def test_shows_them_oldest_first(self, acme: Acme, clock: FakeClock) -> None:
        await make(acme.management)
        clock.advance(1)
        await make(acme.management, name="Bob")

        reply = await acme.management.get("/users")

        assert [each["name"] for each in reply.json()["data"]] == ["Ann", "Bob"]
        assert reply.json()["total_count"] == 2


class TestChange:
    async def test_changes_what_is_given_and_leaves_the_rest(
        self, acme: Acme, clock: FakeClock
    ) -> None:
        made = await make(acme.management)
        clock.advance(1)

        reply = await acme.management.patch(f"/users/{made['id']}", json={"name": "Anna"})

        changed = {**made, "name": "Anna", "updated_at": "2026-03-12T10:30:01.000Z"}
        assert reply.json() == {"data": changed}
        assert (await acme.management.get(f"/users/{made['id']}")).json() == {"data": changed}
