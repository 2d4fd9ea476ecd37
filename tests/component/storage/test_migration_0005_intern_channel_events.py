"""An upgrade to remembered events: interns of before stay, and each may have some, once each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import INTERN, execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_EVENT = "INSERT INTO intern_channel_events (intern_id, event_id, seen_at) VALUES ('{}', 'Ev1', 0)"


def test_keeps_interns_and_takes_their_events(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0005", tmp_path)
    execute(empty_url, *INTERN)
    upgrade(empty_url)
    execute(empty_url, _EVENT.format("i"))
    assert execute(empty_url, "SELECT name FROM interns") == ["ada"]
    for refused in ("i", "nobody"):
        with pytest.raises(IntegrityError):
            execute(empty_url, _EVENT.format(refused))
