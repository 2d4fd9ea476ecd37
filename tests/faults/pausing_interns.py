"""`tollhouse serve` that stops at a named point in the life of an intern until it may go on.

    python -m tests.faults.pausing_interns FOLDER serve --json ...

Who writes a point's name to FOLDER/wanted has the next that passes there stop: it renames that
file to `reached`, and goes on once that is gone. Everything else of the program goes on meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tollhouse.cli.main import main
from tollhouse.interns.actions import ReconcilerActions
from tollhouse.interns.runtimes import bubblewrap
from tollhouse.interns.sandboxes import PortForwarder
from tollhouse.interns.workspaces.folders import Workspaces
from tollhouse.vault.egress.service import EgressService

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Of each operation, in their order.
BOOT = {
    "workspace to be prepared": (ReconcilerActions, "_prepare", "before"),
    "key made, no way out": (EgressService, "open", "before"),
    "way out open": (EgressService, "open", "after"),
    "sandbox half made": (bubblewrap, "_read_init_process", "after"),
    "sandbox started": (ReconcilerActions, "_start", "after"),
    "door open": (PortForwarder, "open", "after"),
}
SUSPEND = {
    "to be suspended": (ReconcilerActions, "suspend", "before"),
    "sandbox down": (Workspaces, "digest", "before"),
    "files safe": (Workspaces, "digest", "after"),
}
DELETE = {
    "to be deleted": (ReconcilerActions, "destroy", "before"),
    "archived": (Workspaces, "archive", "after"),
    "forgotten, files there": (Workspaces, "remove", "before"),
    "files gone": (Workspaces, "remove", "after"),
}
_LOOK_SECONDS = 0.002


def stop_at(owner: Any, name: str, when: str, stopping: Callable[[], Awaitable[None]]) -> None:
    """Wrap an asynchronous function so that another runs before or after it."""
    original = getattr(owner, name)

    @wraps(original)
    async def changed(*args: Any, **named: Any) -> Any:
        stops = stopping if named.get("flush", name != "digest") else _pass
        if when == "before":
            await stops()
        result = await original(*args, **named)
        if when == "after":
            await stops()
        return result

    setattr(owner, name, changed)


async def _pass() -> None:
    """Do nothing: a digest that flushes nothing belongs to a boot, not to a suspension."""


class Failpoints:
    """Stops each caller at the chosen point until it may go on."""

    def __init__(self, folder: Path) -> None:
        self._wanted = folder / "wanted"
        self._reached = folder / "reached"

    async def at(self, point: str) -> None:
        if not self._wanted.exists() or self._wanted.read_text() != point:
            return
        self._wanted.rename(self._reached)
        while self._reached.exists():
            await asyncio.sleep(_LOOK_SECONDS)


def _set_failpoints(stops: Failpoints) -> None:
    for point, (owner, name, when) in (BOOT | SUSPEND | DELETE).items():
        stop_at(owner, name, when, lambda point=point: stops.at(point))


if __name__ == "__main__":
    _, chosen, *arguments = sys.argv
    _set_failpoints(Failpoints(Path(chosen)))
    sys.argv = ["tollhouse", *arguments]
    main()
