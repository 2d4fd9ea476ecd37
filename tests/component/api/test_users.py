"""`/users`: the people of an account."""

from tests.component.api.conftest import Acme
from tests.support.clock import FakeClock

ANN = {"name": "Ann", "email": "ann@acme.example"}


async def test_users_show_every_field_oldest_first_and_change_in_what_is_given(
    acme: Acme, clock: FakeClock
) -> None:
    users, made = acme.management, dict[str, str]()
    for name in ("Ann", "Bob"):
        reply = await users.post("/users", json={**ANN, "name": name})
        assert reply.status_code == 201, reply.text
        shown = reply.json()["data"]
        made[name] = shown.pop("id")
        created = f"2026-03-12T10:30:0{len(made) - 1}.000Z"
        facts = {"account_id": acme.account_id, "created_at": created, "updated_at": None}
        assert shown == {**ANN, "name": name, **facts}
        clock.advance(1)
    listed = (await users.get("/users")).json()
    assert [each["id"] for each in listed["data"]] == list(made.values())
    assert listed["total_count"] == 2

    path = f"/users/{made['Ann']}"
    reply = await users.patch(path, json={"name": "Anna"})
    changed = {**listed["data"][0], "name": "Anna", "updated_at": "2026-03-12T10:30:02.000Z"}
    assert reply.json() == (await users.get(path)).json() == {"data": changed}
