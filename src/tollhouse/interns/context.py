"""What the modules of interns share: dependencies, notifications, what a reconciler tells."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Generator

    from tollhouse.audit.service import AuditService
    from tollhouse.identity.access import InternKeys
    from tollhouse.identity.service import IdentityService
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database, Read
    from tollhouse.vault.service import VaultService


class Notifications:
    """Tells those who wait in the same process."""

    def __init__(self) -> None:
        self._any = asyncio.Event()
        self._notified: set[str] = set()
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def notify(self, intern_id: str | None) -> None:
        """Say that something is to be done with an intern, or was done; None: with any."""
        for each in self._waiting if intern_id is None else (intern_id,):
            self._notified.add(each)
            for event in self._waiting.get(each, ()):
                event.set()
        self._any.set()

    @contextmanager
    def subscribe(self, intern_id: str) -> Generator[asyncio.Event]:
        """Return what is set whenever somebody says so of an intern, from now on."""
        event = asyncio.Event()
        self._waiting[intern_id].add(event)
        try:
            yield event
        finally:
            self._waiting[intern_id].discard(event)
            if not self._waiting[intern_id]:
                del self._waiting[intern_id]

    async def wait_for_any(self, seconds: float) -> frozenset[str]:
        """Wait until somebody says so of any, and return of which since the last call.

        It waits only so long, and for one caller at a time.
        """
        await wait_for_event(self._any, seconds)
        self._any.clear()
        notified = frozenset(self._notified)
        self._notified.clear()
        return notified


class ReconcilerStatus(Protocol):
    """What services ask of the reconciler that brings interns where they are wanted."""

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """Make sure that a reconciler is at work on a machine; with None, on any.

        Raises `ServiceUnreachable` where none is.
        """
        ...

    def expect_boot(self) -> None:
        """Begin what a boot would have to wait for: one is about to be asked for."""
        ...

    def is_here(self, machine: str) -> bool:
        """Tell whether it runs what is on a machine."""
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """What an operator decides of interns."""

    most: int
    """Interns that one creator may have in a workspace."""
    public_url: str | None = None
    """Their address, with `{intern}` for the id of one; None: the gateway's own."""


@dataclass(frozen=True, slots=True)
class InternContext:
    """What everything of interns uses."""

    database: Database
    identity: IdentityService
    keys: InternKeys
    vaults: VaultService
    audit: AuditService
    notifications: Notifications
    clock: Clock
    ids: IdSource
    rules: Rules
