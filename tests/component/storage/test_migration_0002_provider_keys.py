"""An upgrade to own keys of providers: rows of before stay, and keys find their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import INTERN, execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_VAULT = (
    "INSERT INTO vaults (id, account_id, workspace_id, kind, kek_id, wrapped_key, created_at)"
    " VALUES ('v', 'a', 'w', 'workspace', 'k', 'x', 0)"
)
_BATCH = (
    "INSERT INTO batches (id, account_id, workspace_id, key_hash, endpoint, model, attribution,"
    " digest, status, total, created_at, expires_at)"
    " VALUES ('b', 'a', 'w', 'k', '/v1/chat/completions', 'm', '{}', 'd', 'validating', 1, 0, 1)"
)
_KEY = (
    "INSERT INTO provider_keys (id, account_id, workspace_id, vault_id, provider, label, disabled,"
    " is_fallback, is_required, is_byok_only, sort_order, version, sealed, created_at)"
    " VALUES ('k', 'a', '{workspace}', 'v', 'p', 'l', false, {both}, false, {both}, 0, 1, 'x', 0)"
)


def test_keeps_what_was_there_and_takes_keys(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0002", tmp_path)
    execute(empty_url, *INTERN[:2], _VAULT, _BATCH)
    upgrade(empty_url)
    execute(empty_url, _KEY.format(workspace="w", both="false"))
    assert execute(empty_url, "SELECT id FROM vaults") == ["v"]
    found = execute(empty_url, "SELECT is_byok FROM batches")
    assert [bool(each) for each in found] == [False]
    for refused in (("none", "false"), ("w", "true")):
        with pytest.raises(IntegrityError):
            execute(empty_url, _KEY.format(workspace=refused[0], both=refused[1]))
