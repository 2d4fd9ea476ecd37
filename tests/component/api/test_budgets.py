"""Budgets of workspaces, users and end users over HTTP."""

from typing import Any

import pytest

from tests.component.api.conftest import Acme, message
from tests.support.builders import charge, generation_record
from tests.support.clock import FakeClock
from tests.support.seams.accounting import AccountingService
from tollhouse.storage.database import Database

WORKSPACE = "/workspaces/default/budgets"
END_USER = "/workspaces/default/end-users/a:b%2Fbudgets/budgets"


async def user_path(acme: Acme) -> str:
    made = await acme.management.post("/users", json={"name": "Ann"})
    return f"/users/{made.json()['data']['id']}/budgets"


@pytest.fixture(params=["workspace", "user", "end user"])
async def path(request: pytest.FixtureRequest, acme: Acme) -> str:
    """Where the budgets of an owner are."""
    if request.param == "user":
        return await user_path(acme)
    return WORKSPACE if request.param == "workspace" else END_USER


async def put(acme: Acme, path: str, limit: object, **more: object) -> dict[str, Any]:
    reply = await acme.management.put(path, json={"limit_usd": limit, **more})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_a_budget_lives_until_it_is_removed(acme: Acme, path: str, clock: FakeClock) -> None:
    management = acme.management
    assert (await management.get(path)).json() == {"data": [], "include_byok_in_budgets": False}
    assert message(await management.get(f"{path}/daily"), 404) == "There is no daily budget."
    made = (await put(acme, f"{path}/daily", 2.5))["data"]
    assert made["created_at"] == made["updated_at"]
    assert (made["limit_usd"], made["reset_interval"], made["spend_usd"]) == (2.5, "daily", 0)
    owner = made["workspace_id"], made["user_id"], made["end_user"]
    assert owner == {
        WORKSPACE: (acme.workspace_id, None, None),
        END_USER: (acme.workspace_id, None, "a:b/budgets"),
    }.get(path, (None, path.split("/")[2], None))
    clock.advance(60)
    raised = (await put(acme, f"{path}/daily", "3.000000001"))["data"]
    assert raised["updated_at"] > made["updated_at"]
    changed = {"limit_usd": 3.000000001, "remaining_usd": 3.000000001}
    assert raised == made | changed | {"updated_at": raised["updated_at"]}
    ever = (await put(acme, f"{path}/lifetime", 5, include_byok_in_budgets=True))["data"]
    assert (ever["reset_interval"], ever["resets_at"], ever["include_byok"]) == (None, None, True)
    listed = (await management.get(path)).json()
    assert listed == {
        "data": [raised | {"include_byok": True}, ever],
        "include_byok_in_budgets": True,
    }
    for _ in range(2):
        assert (await management.delete(f"{path}/daily")).json() == {"deleted": True}
    assert (await management.get(path)).json()["data"] == [ever]
    assert (await management.get(f"{path}/lifetime")).json()["data"] == ever


async def test_limits_strictly_shrink(acme: Acme, path: str) -> None:
    await put(acme, f"{path}/weekly", 5)
    for interval, limit, word in (
        *(("daily", 5, "less"), ("monthly", 5, "more"), ("lifetime", 4.9, "more")),
    ):
        refused = await acme.management.put(f"{path}/{interval}", json={"limit_usd": limit})
        text = f"limit_usd: must be {word} than the weekly limit of 5."
        assert message(refused, 400) == text
    await put(acme, f"{path}/lifetime", 5.000000001)
    await put(acme, f"{path}/daily", 4.999999999)
    refused = await acme.management.put(f"{path}/weekly", json={"limit_usd": 5.000000001})
    assert message(refused, 400).endswith("less than the lifetime limit of 5.000000001.")


async def test_own_keys_count_in_every_budget_of_a_workspace_or_in_none(acme: Acme) -> None:
    await put(acme, f"{WORKSPACE}/daily", 1)
    await put(acme, f"{WORKSPACE}/weekly", 2, include_byok_in_budgets=True)
    found = (await acme.management.get(WORKSPACE)).json()
    assert [each["include_byok"] for each in found["data"]] == [True, True]
    shown = (await acme.management.get("/workspaces/default")).json()["data"]
    assert shown["include_byok_in_budgets"] is True
    for interval in ("daily", "weekly"):
        await acme.management.delete(f"{WORKSPACE}/{interval}")
    assert (await put(acme, f"{WORKSPACE}/monthly", 9))["include_byok_in_budgets"] is True


async def test_end_users_budgets_are_listed_by_name_and_leave_with_their_workspace(
    acme: Acme,
) -> None:
    await acme.management.post("/workspaces", json={"name": "Lab", "slug": "lab"})
    await put(acme, "/workspaces/lab/budgets/daily", 1)
    for name in ("b", "a"):
        await put(acme, f"/workspaces/lab/end-users/{name}/budgets/daily", 1)
    await put(acme, f"{END_USER}/daily", 1)
    path = "/workspaces/lab/end-users/budgets"
    page = (await acme.management.get(path, params={"limit": 1, "offset": 1})).json()
    assert ([each["end_user"] for each in page["data"]], page["total_count"]) == (["b"], 2)
    assert (await acme.management.delete("/workspaces/lab")).status_code == 200
    await acme.management.post("/workspaces", json={"name": "Lab", "slug": "lab"})
    assert (await acme.management.get(path)).json()["data"] == []
    assert (await acme.management.get("/workspaces/lab/budgets")).json()["data"] == []
    left = await acme.management.get("/workspaces/default/end-users/budgets")
    assert left.json()["total_count"] == 1


async def test_what_was_used_counts_from_each_midnight_on(
    acme: Acme, path: str, clock: FakeClock, database: Database, accounting: AccountingService
) -> None:
    key = acme.api_key.key.hash
    if path.startswith("/users"):
        user = path.split("/")[2]
        made = await acme.management.post("/keys", json={"name": "k", "creator_user_id": user})
        key = made.json()["data"]["hash"]

    async def book(number: int, **fields: Any) -> None:
        record = generation_record(
            id=f"gen-{number}",
            account_id=acme.account_id,
            workspace_id=acme.workspace_id,
            key_hash=key,
            charge=charge(1_000_000_000 * number),
            created_at=clock.now(),
            external_user="a:b/budgets",
            **fields,
        )
        async with database.writing() as write:
            await accounting.book(write, [record])

    await book(1)
    clock.advance(86_400 * 40)
    await book(2)
    spent = {
        interval: (await put(acme, f"{path}/{interval}", limit))["data"]["spend_usd"]
        for interval, limit in (("daily", 1), ("lifetime", 9))
    }
    assert spent == {"daily": 2, "lifetime": 3}
    daily = (await acme.management.get(f"{path}/daily")).json()["data"]
    assert daily["remaining_usd"] == -1
