"""The news of one process; fulfils `ports.News`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tollhouse.kernel.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Generator


class LocalNews:
    """Tells those who wait in the same process."""

    def __init__(self) -> None:
        """Start in silence."""
        self._any = asyncio.Event()
        self._rung: set[str] = set()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def ring(self, intern_id: str) -> None:
        """Say that something is to be done with an intern, or was done."""
        self._rung.add(intern_id)
        self._any.set()
        for event in self._waiting.get(intern_id, ()):
            event.set()

    @contextmanager
    def listening(self, intern_id: str) -> Generator[asyncio.Event]:
        """Return what is set whenever somebody says so of an intern, from now on."""
        event = asyncio.Event()
        self._waiting[intern_id].add(event)
        try:
            yield event
        finally:
            self._waiting[intern_id].discard(event)
            if not self._waiting[intern_id]:
                del self._waiting[intern_id]

    async def any_rung(self, seconds: float) -> frozenset[str]:
        """Wait until somebody says so of any, but only so long; one waits at a time.

        Returns:
            Of which it was said since the last time.
        """
        await wait_for_event(self._any, seconds)
        self._any.clear()
        rung = frozenset(self._rung)
        self._rung.clear()
        return rung
