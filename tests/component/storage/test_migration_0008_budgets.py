"""An upgrade to budgets over processes: nobody runs meanwhile, and nothing is granted yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa


def test_a_process_of_before_is_not_live(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0008", tmp_path)
    execute(empty_url, "INSERT INTO holders (id, booked_seq) VALUES ('one', 7)")
    upgrade(empty_url)
    assert execute(empty_url, "SELECT id FROM holders WHERE booked_seq = 7 AND NOT live") == ["one"]
    assert execute(empty_url, "SELECT id FROM budgets UNION SELECT holder FROM leases") == []
