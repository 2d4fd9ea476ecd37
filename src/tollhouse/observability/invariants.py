"""The scheduler of invariants: checks what has to be true again and again, beside serving.

    invariants = Invariants({"ledger": check}, metrics, seconds=300)
    invariants.start()      a task that waits, checks, waits
    await invariants.stop()

Slices own the checks; `apps` puts them here. What is broken is an error in the log and counted; so
is a check that fails, and the next round tries again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tollhouse.observability.metrics import Metrics

    Check = Callable[[], Awaitable[Sequence[Mapping[str, object]]]]
    """Returns the facts of whatever is not as it has to be."""

MOST_LOGGED: Final = 20
"""How many broken facts of one round are logged; all are counted."""
STOP_SECONDS: Final = 5.0
"""How long `stop` waits for a check that runs."""
_log = structlog.get_logger(__name__)


class Invariants:
    """Checks each invariant every so many seconds."""

    def __init__(self, checks: Mapping[str, Check], metrics: Metrics, seconds: float) -> None:
        """Take checks by their names in logs, and the pause before each round; 0: never check."""
        self._checks = checks
        self._metrics = metrics
        self._seconds = seconds
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; does nothing where the pause is 0."""
        if self._seconds > 0 and self._task is None:
            self._task = asyncio.create_task(self._run(), name="invariants")

    async def stop(self) -> None:
        """End; a check that runs may finish, but not for long."""
        self._stopping.set()
        if self._task is None:
            return
        await asyncio.wait([self._task], timeout=STOP_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not await wait_for_event(self._stopping, self._seconds):
            for name, check in self._checks.items():
                await self._check(name, check)

    async def _check(self, name: str, check: Check) -> None:
        try:
            broken = await check()
        except Exception:  # noqa: BLE001 - the edge: the next round tries again
            _log.exception("invariant_not_checked", invariant=name)
            self._metrics.count_check(name, "failed")
            return
        for facts in broken[:MOST_LOGGED]:
            _log.error("invariant_broken", invariant=name, **facts)
        self._metrics.count_check(name, "broken" if broken else "kept", len(broken))
