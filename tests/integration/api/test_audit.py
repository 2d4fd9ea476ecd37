"""The record of changes that the control plane makes."""

from collections.abc import Sequence

import pytest

from tests.integration.api.conftest import Acme
from tollhouse.audit.chain import Verifier, exported
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import Action, Row
from tollhouse.storage.database import Database
from tollhouse.testing.clock import FakeClock


class Record:
    """The rows of an account."""

    def __init__(self, database: Database, clock: FakeClock, account_id: str) -> None:
        self.database, self.account_id = database, account_id
        self.service = AuditService(clock)

    async def rows(self) -> Sequence[Row]:
        async with self.database.reading() as read:
            return await self.service.rows(read, self.account_id, 0, 100)

    async def last(self) -> Row:
        return (await self.rows())[-1]


@pytest.fixture
def record(database: Database, clock: FakeClock, acme: Acme) -> Record:
    return Record(database, clock, acme.account_id)


async def test_a_changed_key_is_told_with_who_changed_it_and_what(
    acme: Acme, record: Record
) -> None:
    path = f"/keys/{acme.api_key.key.hash}"
    reply = await acme.management.patch(path, json={"disabled": True, "limit": 5})
    assert reply.status_code == 200
    entry = (await record.last()).entry
    assert entry.action is Action.KEY_CHANGED
    assert entry.actor == acme.management_key.key.hash
    assert entry.object_id == acme.api_key.key.hash
    assert entry.changes == {
        "disabled": {"old": False, "new": True},
        "limit_nano": {"old": None, "new": 5_000_000_000},
    }


async def test_each_change_grows_the_chain_and_the_chain_holds(acme: Acme, record: Record) -> None:
    one = f"/accounts/{acme.account_id}"
    key = f"/keys/{acme.api_key.key.hash}"
    user = (await acme.management.post("/users", json={"name": "Ann"})).json()["data"]["id"]
    calls = [
        ("PATCH", f"/users/{user}", {"name": "Bea"}),
        ("PATCH", one, {"free_limits_exempt": True}),
        ("PUT", f"{one}/policy", {"blocked_models": ["a/*"]}),
        ("POST", "/workspaces", {"name": "Lab", "slug": "lab"}),
        ("PATCH", "/workspaces/lab", {"description": "Experiments"}),
        ("PUT", "/workspaces/lab/policy", {"patterns": ["falcon"]}),
        ("DELETE", "/workspaces/lab", None),
        ("POST", "/keys", {"name": "ci"}),
        ("PUT", f"{key}/policy", {"blocked_models": ["a/*"]}),
        ("DELETE", key, None),
        ("POST", "/credits", {"kind": "grant", "amount": 3}),
    ]
    for method, path, body in calls:
        reply = await acme.operator.request(method, path, json=body)
        assert reply.status_code < 300, (path, reply.text)
    rows = await record.rows()
    assert [row.entry.action.value for row in rows] == [
        "user_created", "user_changed", "account_changed", "account_policy_changed",
        "workspace_created", "workspace_changed", "workspace_policy_changed", "workspace_deleted",
        "key_created", "key_policy_changed", "key_deleted", "credits_posted",
    ]  # fmt: skip
    assert Verifier().fault_in([exported(row) for row in rows]) is None
    told = str([exported(row) for row in rows])
    assert "falcon" not in told
    assert acme.api_key.key.label not in told


async def test_a_refused_change_leaves_no_row(acme: Acme, record: Record) -> None:
    reply = await acme.management.patch(f"/accounts/{acme.account_id}", json={"type": "enterprise"})
    assert reply.status_code == 403
    assert await record.rows() == []


async def test_credits_that_are_asked_for_again_have_one_row(acme: Acme, record: Record) -> None:
    for _ in range(2):
        body = {"kind": "grant", "amount": 3, "account_id": acme.account_id}
        reply = await acme.operator.post("/credits", json=body, headers={"Idempotency-Key": "one"})
        assert reply.status_code == 201
    assert len(await record.rows()) == 1
