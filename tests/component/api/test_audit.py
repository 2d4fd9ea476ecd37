"""The record of changes that the control plane makes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.component.api.conftest import Acme, ControlPlane
from tests.support.clock import FakeClock
from tollhouse.audit.chain import ChainVerifier, exported
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import AuditAction, AuditRow
from tollhouse.storage.database import Database

ANN = {"name": "Ann", "email": "ann@example.com"}
CHANGES: dict[tuple[str, str], tuple[Any, AuditAction]] = {
    ("PATCH", "/users/{user_id}"): ({"name": "Bea"}, AuditAction.USER_CHANGED),
    ("POST", "/users"): (ANN, AuditAction.USER_CREATED),
    ("POST", "/accounts"): ({"name": "Bolt"}, AuditAction.ACCOUNT_CREATED),
    ("PATCH", "/accounts/{account_id}"): (
        {"free_limits_exempt": True},
        AuditAction.ACCOUNT_CHANGED,
    ),
    ("PUT", "/accounts/{account_id}/policy"): (
        {"blocked_models": ["a/*"]},
        AuditAction.ACCOUNT_POLICY_CHANGED,
    ),
    ("POST", "/workspaces"): ({"name": "Lab", "slug": "lab"}, AuditAction.WORKSPACE_CREATED),
    ("PATCH", "/workspaces/{id}"): ({"description": "Experiments"}, AuditAction.WORKSPACE_CHANGED),
    ("PUT", "/workspaces/{id}/policy"): (
        {"patterns": ["falcon"]},
        AuditAction.WORKSPACE_POLICY_CHANGED,
    ),
    **{
        (method, f"{owner}/budgets/{{interval}}"): (body, action)
        for owner in (
            "/workspaces/{id}",
            "/users/{user_id}",
            "/workspaces/{id}/end-users/{end_user}",
        )
        for method, body, action in (
            ("PUT", {"limit_usd": 5}, AuditAction.BUDGET_SET),
            ("DELETE", None, AuditAction.BUDGET_REMOVED),
        )
    },
    ("DELETE", "/workspaces/{id}"): (None, AuditAction.WORKSPACE_DELETED),
    ("POST", "/keys"): ({"name": "ci"}, AuditAction.KEY_CREATED),
    ("PATCH", "/keys/{hash}"): ({"disabled": True}, AuditAction.KEY_CHANGED),
    ("PUT", "/keys/{hash}/policy"): ({"blocked_models": ["a/*"]}, AuditAction.KEY_POLICY_CHANGED),
    ("DELETE", "/keys/{hash}"): (None, AuditAction.KEY_DELETED),
    ("POST", "/credits"): ({"kind": "grant", "amount": 3}, AuditAction.CREDITS_POSTED),
}
"""Every operation that changes something, what is sent, and how the record calls it."""


class Record:
    """The rows of an account."""

    def __init__(self, database: Database, clock: FakeClock, account_id: str) -> None:
        self.database, self.account_id = database, account_id
        self.service = AuditService(clock)

    async def rows(self) -> Sequence[AuditRow]:
        async with self.database.reading() as read:
            return await self.service.rows(read, self.account_id, 0, 100)

    async def last(self) -> AuditRow:
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
    assert entry.action is AuditAction.KEY_CHANGED
    assert entry.actor == acme.management_key.key.hash
    assert entry.object_id == acme.api_key.key.hash
    assert entry.changes == {
        "disabled": {"old": False, "new": True},
        "limit_nano": {"old": None, "new": 5_000_000_000},
    }


async def test_each_change_grows_the_chain_and_the_chain_holds(
    acme: Acme, record: Record, plane: ControlPlane
) -> None:
    named = {
        "{account_id}": acme.account_id,
        "{hash}": acme.api_key.key.hash,
        "{user_id}": (await acme.management.post("/users", json=ANN)).json()["data"]["id"],
        "{id}": "lab",
        "{end_user}": "ada@acme.example/falcon",
        "{interval}": "daily",
    }
    for (method, path), (body, _) in CHANGES.items():
        for name, value in named.items():
            path = path.replace(name, value)  # noqa: PLW2901 - filled in
        reply = await acme.operator.request(method, path, json=body)
        assert reply.status_code < 300, (path, reply.text)
    rows = await record.rows()
    assert [row.entry.action for row in rows[1:]] == [
        action for _, action in CHANGES.values() if action is not AuditAction.ACCOUNT_CREATED
    ]
    assert ChainVerifier().fault_in([exported(row) for row in rows]) is None
    told = str([exported(row) for row in rows])
    assert "falcon" not in told
    assert acme.api_key.key.label not in told
    document = plane.app.openapi()["paths"]
    changing = {
        (method.upper(), path)
        for path, operations in document.items()
        for method in operations
        if method != "get"
    }
    of_the_installation = {("POST", "/ledger/holders/{id}/write-off")}
    assert changing == CHANGES.keys() | of_the_installation


async def test_an_account_is_made_in_a_record_of_its_own(acme: Acme, record: Record) -> None:
    made = (await acme.operator.post("/accounts", json={"name": "Bolt"})).json()["data"]
    record.account_id = made["id"]
    [row] = await record.rows()
    assert (row.entry.action, row.entry.object_id) == (AuditAction.ACCOUNT_CREATED, made["id"])


async def test_who_a_user_is_stays_out_of_the_record(acme: Acme, record: Record) -> None:
    user = (await acme.management.post("/users", json=ANN)).json()["data"]["id"]
    await acme.management.patch(f"/users/{user}", json={"name": "Bea", "email": None})
    entry = (await record.last()).entry
    assert (entry.object_id, entry.name) == (user, None)
    assert entry.changes == {
        "name": {"old": "hidden", "new": "hidden"},
        "email": {"old": "hidden", "new": None},
    }
    assert "Ann" not in str(await record.rows())


async def test_changes_at_once_wait_for_each_other(acme: Acme, record: Record) -> None:
    named = ("/workspaces", {"name": "Lab", "slug": "lab"})
    await acme.management.post(named[0], json=named[1])
    calls = [
        acme.management.patch("/workspaces/lab", json={"description": str(number)})
        if number % 2
        else acme.management.patch(f"/keys/{acme.api_key.key.hash}", json={"limit": number + 1})
        for number in range(12)
    ]
    replies = await asyncio.gather(*calls, acme.management.delete("/workspaces/lab"))
    assert {reply.status_code for reply in replies} <= {200, 404}
    rows = await record.rows()
    assert len(rows) == 1 + sum(reply.status_code == 200 for reply in replies)
    assert ChainVerifier().fault_in([exported(row) for row in rows]) is None


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
