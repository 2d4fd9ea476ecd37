"""Who may use which operation of the control plane, and what all others are told."""

from typing import Any

import httpx2
import pytest

from tests.component.api.conftest import Acme, Client, message

NEEDS_MANAGER = "This operation needs a management key."
NEEDS_OPERATOR = "This operation needs an operator's management key."
NAMED = {"name": "Mine"}
LAB = {"name": "Lab", "slug": "lab"}
NO_KEY = "0" * 64

OF_MANAGERS: list[tuple[str, str, dict[str, Any] | None, int]] = [
    ("POST", "/accounts", NAMED, 403),
    ("GET", "/accounts", None, 403),
    ("GET", "/accounts/{account}", None, 403),
    ("PATCH", "/accounts/{account}", NAMED, 403),
    ("POST", "/users", NAMED, 403),
    ("GET", "/users", None, 403),
    ("GET", "/users/nobody", None, 403),
    ("PATCH", "/users/nobody", NAMED, 403),
    ("POST", "/workspaces", LAB, 403),
    ("GET", "/workspaces", None, 401),
    ("GET", "/workspaces/default", None, 403),
    ("PATCH", "/workspaces/default", NAMED, 403),
    ("DELETE", "/workspaces/default", None, 403),
    ("POST", "/keys", {"what": "it looks at no body"}, 403),
    ("GET", "/keys", None, 401),
    ("GET", "/keys/{key}", None, 401),
    ("PATCH", "/keys/{key}", NAMED, 403),
    ("DELETE", "/keys/{key}", None, 401),
    ("GET", "/credits", None, 403),
    ("POST", "/credits", {"amount": 5}, 403),
    ("GET", "/activity", None, 403),
    ("GET", "/ledger/verify", None, 403),
]
OF_OPERATORS: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/accounts", NAMED),
    ("POST", "/credits", {"amount": 5}),
    ("GET", "/ledger/verify", None),
]
OF_ANOTHER_ACCOUNT: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("GET", "/accounts/{account}", None, "No such account."),
    ("PATCH", "/accounts/{account}", NAMED, "No such account."),
    ("POST", "/users", {**NAMED, "account_id": "{account}"}, "No such account."),
    ("GET", "/users/{user}", None, "No such user."),
    ("PATCH", "/users/{user}", NAMED, "No such user."),
    ("POST", "/workspaces", {**LAB, "account_id": "{account}"}, "No such account."),
    ("GET", "/workspaces?account_id={account}", None, "No such account."),
    ("GET", "/workspaces/{workspace}", None, "No such workspace."),
    ("PATCH", "/workspaces/{workspace}", NAMED, "No such workspace."),
    ("DELETE", "/workspaces/{workspace}", None, "No such workspace."),
    ("POST", "/keys", {**NAMED, "account_id": "{account}"}, "No such account."),
    ("GET", "/keys?workspace_id={workspace}", None, "No such workspace."),
    ("GET", "/keys/{key}", None, "No such key."),
    ("PATCH", "/keys/{key}", NAMED, "No such key."),
    ("DELETE", "/keys/{key}", None, "No such key."),
    ("GET", "/credits?account_id={account}", None, "No such account."),
]
OF_NOBODY: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/accounts/nobody", None),
    ("GET", "/keys?account_id=nobody", None),
    ("PATCH", "/accounts/nobody", NAMED),
    ("GET", "/users/nobody", None),
    ("GET", "/workspaces/nowhere", None),
    ("GET", f"/keys/{NO_KEY}", None),
    ("PATCH", f"/keys/{NO_KEY}", NAMED),
    ("DELETE", f"/keys/{NO_KEY}", None),
    ("POST", "/credits", {"amount": 5, "account_id": "nobody"}),
]


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
