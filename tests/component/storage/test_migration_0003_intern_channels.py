"""An upgrade to interns in chat services: interns of before stay, and each may have a service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import INTERN, execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_CHANNEL = (
    "INSERT INTO intern_channels (intern_id, service, settings, updated_at)"
    " VALUES ('{}', 'slack', '{{}}', 0)"
)


def test_keeps_interns_and_takes_their_services(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0003", tmp_path)
    execute(empty_url, *INTERN)
    upgrade(empty_url)
    execute(empty_url, _CHANNEL.format("i"))
    assert execute(empty_url, "SELECT name FROM interns") == ["ada"]
    for refused in ("i", "nobody"):
        with pytest.raises(IntegrityError):
            execute(empty_url, _CHANNEL.format(refused))
