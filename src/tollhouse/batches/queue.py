"""The doorbell of one process; fulfils `ports.Doorbell`."""

from __future__ import annotations

import asyncio

from tollhouse.kernel.waiting import wait_for_event


class LocalDoorbell:
    """Rings for the worker in the same process."""

    def __init__(self) -> None:
        """Start in silence."""
        self._rings = asyncio.Event()
        self._named: set[str] = set()

    def ring(self, batch_id: str) -> None:
        """Say that a batch came, or is to be looked at."""
        self._named.add(batch_id)
        self._rings.set()

    async def rung(self, seconds: float) -> frozenset[str]:
        """Wait for a ring, but only so long; see `Doorbell.rung`."""
        await wait_for_event(self._rings, seconds)
        self._rings.clear()
        named, self._named = frozenset(self._named), set()
        return named
