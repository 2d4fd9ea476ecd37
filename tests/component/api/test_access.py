"""Who may use which operation of the control plane, and what all others are told."""

from typing import Any

import httpx2
import pytest

from tests.component.api.conftest import Acme, Client, message
from tests.support.tables import tables

CASES = tables(__file__)

NEEDS_MANAGER = "This operation needs a management key."
NEEDS_OPERATOR = "This operation needs an operator's management key."
NAMED = {"name": "Mine"}
LAB = {"name": "Lab", "slug": "lab"}
NO_KEY = "0" * 64

OF_MANAGERS: list[tuple[str, str, dict[str, Any] | None, int]] = CASES["OF_MANAGERS"]
OF_OPERATORS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/accounts", NAMED),
    ("POST", "/credits", {"amount": 5}),
    ("GET", "/ledger/verify", None),
]
OF_ANOTHER_ACCOUNT: list[tuple[str, str, dict[str, Any] | None, str]] = CASES["OF_ANOTHER_ACCOUNT"]
OF_NOBODY: list[tuple[str, str, dict[str, Any] | None]] = CASES["OF_NOBODY"]


async def ask(
    client: Client, owner: Acme, method: str, path: str, body: dict[str, Any] | None
) -> httpx2.Response:
    """Send a request in which the names of what an account has are filled in."""
    names = {
        "account": owner.account_id,
        "workspace": owner.workspace_id,
        "key": owner.api_key.key.hash,
    }
    if "{user}" in path:
        made = await owner.management.post("/users", json={"name": "Ann"})
        names["user"] = made.json()["data"]["id"]
    filled = None
    if body is not None:
        filled = {
            name: value.format(**names) if isinstance(value, str) else value
            for name, value in body.items()
        }
    return await client.request(method, path.format(**names), json=filled)


async def test_keys_that_manage_nothing_are_refused(acme: Acme, subtests: pytest.Subtests) -> None:
    for method, path, body, status in OF_MANAGERS:
        for client in (acme.api, acme.intern):
            with subtests.test(method=method, path=path):
                reply = await ask(client, acme, method, path, body)
                assert message(reply, status) == NEEDS_MANAGER


async def test_what_operators_do_is_refused_to_managers_of_an_account(
    acme: Acme, subtests: pytest.Subtests
) -> None:
    for method, path, body in OF_OPERATORS:
        with subtests.test(method=method, path=path):
            reply = await ask(acme.management, acme, method, path, body)
            assert message(reply, 403) == NEEDS_OPERATOR


async def test_what_is_anothers_is_not_there_for_a_manager_and_is_for_an_operator(
    acme: Acme, other: Acme, subtests: pytest.Subtests
) -> None:
    for method, path, body, text in OF_ANOTHER_ACCOUNT:
        with subtests.test(method=method, path=path):
            reply = await ask(acme.management, other, method, path, body)
            assert message(reply, 404) == text
    assert (await other.api.get("/key")).status_code == 200
    for path in ("/accounts/{account}", "/workspaces/{workspace}", "/users/{user}", "/keys/{key}"):
        query = "" if path in {"/accounts/{account}", "/keys/{key}"} else "?account_id={account}"
        with subtests.test(path=path):
            reply = await ask(acme.operator, other, "GET", path + query, None)
            assert reply.status_code == 200


async def test_what_nobody_has_is_not_there(acme: Acme, subtests: pytest.Subtests) -> None:
    for method, path, body in OF_NOBODY:
        with subtests.test(method=method, path=path):
            message(await ask(acme.operator, acme, method, path, body), 404)
