"""Interns with a vault and a key of their own, for tests that need none that runs."""

import secrets
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.support.backdoor import new_own_key
from tests.support.server_process import ServerProcess
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class VaultIntern:
    """An intern with a vault and a key of its own."""

    id: str
    vault_id: str
    key: str


def add_intern(
    server: ServerProcess, *, key: str | None = None, attached: str | None = None
) -> VaultIntern:
    """Make an intern on a server.

    Args:
        server: The server.
        key: One of the workspace; of the first one if there is none.
        attached: The vault that it borrows.
    """
    body = {"name": f"intern-{secrets.token_hex(4)}", "vault_id": attached}
    reply = _request(server, "POST", "/interns", key, json=body)
    assert reply.status_code == httpx2.codes.CREATED, reply.text
    made = reply.json()
    own = new_own_key(server, made["workspace_id"], made["id"])
    return VaultIntern(made["id"], made["vault_id"], own)


def delete_intern(server: ServerProcess, intern_id: str, key: str | None = None) -> None:
    """Delete an intern with its vault, and wait until they are gone."""
    _request(server, "DELETE", f"/interns/{intern_id}", key)
    wait_until(
        lambda: (
            _request(server, "GET", f"/interns/{intern_id}", key).status_code
            == httpx2.codes.NOT_FOUND
        )
    )


def _request(
    server: ServerProcess, method: str, path: str, key: str | None, **content: Any
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key or server.api_key}"}
    url = f"{server.base_url}{path}"
    return httpx2.request(method, url, headers=headers, timeout=30, **content)
