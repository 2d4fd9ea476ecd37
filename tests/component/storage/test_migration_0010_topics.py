"""An upgrade to topics: a database of before has none yet, and each change counts from 1 on."""

from pathlib import Path

import sqlalchemy as sa

from tests.component.storage.earlier_schema import execute, upgrade_to_before
from tollhouse.storage.migrator import upgrade
from tollhouse.storage.notifications import RAISE


def test_the_first_change_of_a_topic_makes_its_row(empty_url: sa.URL, tmp_path: Path) -> None:
    upgrade_to_before(empty_url, "0010", tmp_path)
    execute(empty_url, "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)")
    upgrade(empty_url)
    raised = RAISE.replace(":topic", "'account'")
    assert [execute(empty_url, raised) for _ in range(2)] == [[1], [2]]
    assert execute(empty_url, "SELECT name FROM accounts") == ["A"]
