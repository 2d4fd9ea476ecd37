"""`tollhouse serve` that stops for ever at a named point between a request and its booking.

    python -m tests.faults.pausing_server POINT PASSES MARKER serve --json ...

At the point's `PASSES`th pass it, or its books process, writes the file MARKER and waits to be
killed; one that is started later does not stop again. Nothing else of the program is changed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.settlement.books import COMMANDS
from tollhouse.accounting.settlement.child import Books
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.postgresql_writer import PostgresqlChargeWriter
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.settlement.sqlite_writer import SqliteChargeWriter
from tollhouse.cli.main import main
from tollhouse.inference.providers.http import HttpProvider

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = {
    "held": (AdmissionController, "_begin", "after"),
    "answered": (HttpProvider, "open", "after"),
    "not yet in the journal": (Journal, "append", "before"),
    "in the journal": (Journal, "append", "after"),
    "group begun": (Journal, "switch_files", "after"),
    "not yet forgotten": (Settler, "_empty_booked", "before"),
    "forgotten": (Journal, "empty_booked", "after"),
}
POINTS_OF_BOOKS = {
    "group read": (Books, "book", "before"),
    "being booked": ((SqliteChargeWriter, PostgresqlChargeWriter), "write", "before"),
    "committed": ((SqliteChargeWriter, PostgresqlChargeWriter), "write", "after"),
    "booked, not yet said": (Books, "answer", "after"),
}
"""Those of the books process."""
_LONGEST_PAUSE_SECONDS = 180
BOOKS = str(Path(__file__).with_name("pausing_books.py"))


class Failpoint:
    """Stops the caller that passes for the n-th time; other calls go on."""

    def __init__(self, passes: int, marker: Path) -> None:
        self._left = passes
        self._marker = marker
        self._lock = threading.Lock()

    def reached(self) -> bool:
        with self._lock:
            self._left -= 1
            if self._left or self._marker.exists():
                return False
        self._marker.write_text("reached")
        return True


def _sleep_until_killed() -> None:
    """Stay here; a process that a test has left behind ends by itself after a while."""
    time.sleep(_LONGEST_PAUSE_SECONDS)
    os._exit(1)


def _with_failpoint(
    original: Callable[..., Any], when: str, pause: Failpoint
) -> Callable[..., Any]:
    @wraps(original)
    def sync(*args: Any, **named: Any) -> Any:
        if when == "before" and pause.reached():
            _sleep_until_killed()
        result = original(*args, **named)
        if when == "after" and pause.reached():
            _sleep_until_killed()
        return result

    @wraps(original)
    async def deferred(*args: Any, **named: Any) -> Any:
        if when == "before" and pause.reached():
            await asyncio.Event().wait()
        result = await original(*args, **named)
        if when == "after" and pause.reached():
            await asyncio.Event().wait()
        return result

    return deferred if asyncio.iscoroutinefunction(original) else sync


def set_failpoint(point: str, pause: Failpoint) -> None:
    """Change this process so that it stops at a point."""
    owners, name, when = (POINTS | POINTS_OF_BOOKS)[point]
    for owner in owners if isinstance(owners, tuple) else (owners,):
        stop_at(owner, name, when, pause)


def stop_at(owner: type, name: str, when: str, pause: Failpoint) -> None:
    """Change a method so that it stops `before` or `after` its work."""
    setattr(owner, name, _with_failpoint(getattr(owner, name), when, pause))


if __name__ == "__main__":
    _, chosen, count, file, *arguments = sys.argv
    if chosen in POINTS:
        set_failpoint(chosen, Failpoint(int(count), Path(file)))
    for database in COMMANDS:
        COMMANDS[database] = (sys.executable, BOOKS, database, chosen, count, file)
    sys.argv = ["tollhouse", *arguments]
    main()
