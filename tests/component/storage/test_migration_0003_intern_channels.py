"""An upgrade to interns in chat services: interns of before stay, and each may have a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_BEFORE = (
    "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)",
    (
        "INSERT INTO workspaces (id, account_id, is_default, name, slug, preferences, created_at)"
        " VALUES ('w', 'a', true, 'W', 'w', '{}', 0)"
    ),
    (
        "INSERT INTO interns (id, account_id, workspace_id, creator, name, status, desired, number,"
        " idempotency_key, request_digest, created_at, updated_at)"
        " VALUES ('i', 'a', 'w', '', 'ada', 'awaiting_chat_install', 'idle', 1, 'k', 'd', 0, 0)"
    ),
)
_CHANNEL = (
    "INSERT INTO intern_channels (intern_id, service, settings, updated_at)"
    " VALUES ('{}', 'slack', '{{}}', 0)"
)


def test_keeps_interns_and_takes_their_services(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0003", tmp_path)
    execute(empty_url, *_BEFORE)
    upgrade(empty_url)
    execute(empty_url, _CHANNEL.format("i"))
    assert execute(empty_url, "SELECT name FROM interns") == ["ada"]
    for refused in ("i", "nobody"):
        with pytest.raises(IntegrityError):
            execute(empty_url, _CHANNEL.format(refused))
