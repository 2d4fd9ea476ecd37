"""Interns with a vault and a key of their own, for tests that need none that runs."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from tests.support.backdoor import new_own_key
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class VaultIntern:
    """An intern with a vault and a key of its own."""

    id: str
    vault_id: str
    key: str


def add_intern(
    announced: Mapping[str, Any],
    *,
    key: str | None = None,
    attached: str | None = None,
    database: str | None = None,
) -> VaultIntern:
    """Make an intern on a server.

    Args:
        announced: What the server said of its first start.
        key: One of the workspace; of the first one if there is none.
        attached: The vault that it borrows.
        database: The URL of the server's database, where that is not in its data folder.
    """
    body = {"name": f"intern-{secrets.token_hex(4)}", "vault_id": attached}
    reply = _request(announced, "POST", "/interns", key, json=body)
    assert reply.status_code == httpx2.codes.CREATED, reply.text
    made = reply.json()
    own = new_own_key(
        Path(announced["data_dir"]), made["workspace_id"], made["id"], database=database
    )
    return VaultIntern(made["id"], made["vault_id"], own)


def delete_intern(announced: Mapping[str, Any], intern_id: str, key: str | None = None) -> None:
    """Delete an intern with its vault, and wait until they are gone."""
    _request(announced, "DELETE", f"/interns/{intern_id}", key)
    wait_until(
        lambda: (
            _request(announced, "GET", f"/interns/{intern_id}", key).status_code
            == httpx2.codes.NOT_FOUND
        )
    )


def _request(
    announced: Mapping[str, Any], method: str, path: str, key: str | None, **content: Any
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key or announced['api_key']}"}
    url = f"{announced['base_url']}{path}"
    return httpx2.request(method, url, headers=headers, timeout=30, **content)
