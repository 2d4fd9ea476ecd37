"""The scheduler of invariants: what has to be true is looked at again and again, beside serving.

    invariants = Invariants({"ledger": check}, metrics, seconds=300)
    invariants.start()      a task that looks, waits, looks
    await invariants.stop()

Slices own the checks; `apps` puts them here. What is broken is an error in the log and counted; a
check that fails is, too, and the next round tries again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.observability.metrics import Metrics

    Check = Callable[[], Awaitable[Sequence[Mapping[str, object]]]]
    """Returns the facts of whatever is not as it has to be."""

MOST_LOGGED: Final = 20
"""How many broken facts of one round are logged; all are counted."""
PATIENCE_SECONDS: Final = 5.0
"""How long `stop` waits for a check that runs."""
_log = structlog.get_logger(__name__)


class Invariants:
    """Looks at each invariant every so many seconds."""

    def __init__(self, checks: Mapping[str, Check], metrics: Metrics, seconds: float) -> None:
        """Take what to look at.

        Args:
            checks: By the names that logs and metrics have for them.
            metrics: Counts what was found.
            seconds: The pause before each round; 0: never look.
        """
        self._checks = checks
        self._metrics = metrics
        self._seconds = seconds
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look; does nothing where the pause is 0."""
        if self._seconds > 0 and self._task is None:
            self._task = asyncio.create_task(self._rounds(), name="invariants")

    async def stop(self) -> None:
        """End; a check that runs may finish, but not for long."""
        self._stopping.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=PATIENCE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _rounds(self) -> None:
        while not await wait_for_event(self._stopping, self._seconds):
            for name, check in self._checks.items():
                await self._look(name, check)

    async def _look(self, name: str, check: Check) -> None:
        try:
            broken = await check()
        except Exception:  # noqa: BLE001 - the edge: a database that is away ends no watch
            _log.exception("invariant_not_checked", invariant=name)
            self._metrics.checked(name, "failed")
            return
        for facts in broken[:MOST_LOGGED]:
            _log.error("invariant_broken", invariant=name, **facts)
        self._metrics.checked(name, "broken" if broken else "kept", len(broken))
