"""`tollhouse serve` that stops for ever at a named point between a request and its booking.

    python -m tests.faults.pausing_server POINT PASSES MARKER serve --json ...

At the point's `PASSES`th pass it writes the file MARKER and waits to be killed. Nothing else of the
program is changed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.postgresql import PostgresqlChargeWriter
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.settlement.sqlite import SqliteChargeWriter
from tollhouse.cli.main import main
from tollhouse.inference.providers.http import HttpProvider

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS = {
    "held": (AdmissionController, "_begin", "after"),
    "answered": (HttpProvider, "open", "after"),
    "not yet in the journal": (Journal, "append", "before"),
    "in the journal": (Journal, "append", "after"),
    "group begun": (Journal, "turn", "after"),
    "being booked": ((SqliteChargeWriter, PostgresqlChargeWriter), "_book", "before"),
    "committed": ((SqliteChargeWriter, PostgresqlChargeWriter), "_book", "after"),
    "not yet forgotten": (Settler, "_forget", "before"),
    "forgotten": (Journal, "forget", "after"),
}


class Failpoint:
    """Stops the caller that passes for the n-th time; other calls go on."""

    def __init__(self, passes: int, marker: Path) -> None:
        self._left = passes
        self._marker = marker
        self._lock = threading.Lock()

    def reached(self) -> bool:
        with self._lock:
            self._left -= 1
            if self._left:
                return False
        self._marker.write_text("reached")
        return True


def _sleep_forever() -> None:
    while True:
        time.sleep(60)


def _with_failpoint(
    original: Callable[..., Any], when: str, pause: Failpoint
) -> Callable[..., Any]:
    @wraps(original)
    def sync(*args: Any, **named: Any) -> Any:
        if when == "before" and pause.reached():
            _sleep_forever()
        result = original(*args, **named)
        if when == "after" and pause.reached():
            _sleep_forever()
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
    """Change the program so that it stops at a point."""
    owners, name, when = POINTS[point]
    for owner in owners if isinstance(owners, tuple) else (owners,):
        stop_at(owner, name, when, pause)


def stop_at(owner: type, name: str, when: str, pause: Failpoint) -> None:
    """Change a method so that it stops `before` or `after` its work."""
    setattr(owner, name, _with_failpoint(getattr(owner, name), when, pause))


if __name__ == "__main__":
    _, chosen, count, file, *arguments = sys.argv
    set_failpoint(chosen, Failpoint(int(count), Path(file)))
    sys.argv = ["tollhouse", *arguments]
    main()
