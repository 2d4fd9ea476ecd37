"""An upgrade to numbered charges: nobody has charged anything under a number yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import IntegrityError

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

_HOLDER = "INSERT INTO holders (id, booked_seq) VALUES ('one', 1)"


def test_makes_an_empty_table_of_processes(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0005", tmp_path)
    upgrade(empty_url)
    assert execute(empty_url, "SELECT id FROM holders") == []
    execute(empty_url, _HOLDER)
    with pytest.raises(IntegrityError):
        execute(empty_url, _HOLDER)
