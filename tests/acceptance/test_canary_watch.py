"""What looks through all that a run of the tests has written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.acceptance.canaries import PLANTED
from tests.canary_watch import leaks_below


def test_a_run_that_leaks_is_told_where() -> None:
    # Not in a folder of this run: the watch over this very run would find it too.
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "clean.log").write_text("nothing")
        (folder / "test_one").mkdir()
        (folder / "test_one" / "server.log").write_text(f"key {PLANTED[0]} sent")
        with closing(sqlite3.connect(folder / "kept.db")) as connection, connection:
            connection.execute("CREATE TABLE kept (value TEXT)")
            connection.execute("INSERT INTO kept VALUES (?)", (PLANTED[49],))
        assert leaks_below(folder) == [
            "kept.db (kept.db)",
            "kept.db (kept.db, a cell)",
            "test_one/server.log (server.log)",
        ]
