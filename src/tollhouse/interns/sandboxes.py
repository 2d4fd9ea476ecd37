"""What runs on this machine for interns: sandbox, way out, door; taken down as one.

boot ──> Running ──> look after it ──> take_down
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from tollhouse.interns.doors import Doors
    from tollhouse.interns.runtimes.base import Sandbox
    from tollhouse.vault.egress.service import Egress

_WAITING: Final = 128
"""Connections that may wait until a daemon takes them."""
_NAME_DIGITS: Final = 12


def socket_name(intern_id: str) -> str:
    """Return the name of the socket that an intern's daemon listens on: short, as paths must be."""
    return f"{sha256(intern_id.encode()).hexdigest()[:_NAME_DIGITS]}.sock"


@dataclass(slots=True)
class Running:
    """What runs for one intern; parts that are not there yet, or not any more, are None."""

    intern_id: str
    egress: Path | None = None
    """The folder of its way out."""
    sandbox: Sandbox | None = None
    listener: Path | None = None
    """The socket that its daemon listens on."""
    has_door: bool = False
    """Whether its daemon can be reached."""
    since: datetime | None = None
    """When its daemon was found to answer."""
    ended: asyncio.Task[str] | None = field(default=None, repr=False)
    """Done once the sandbox has ended."""
    ending: asyncio.Task[None] | None = field(default=None, repr=False)
    """Takes it down."""


class Sandboxes:
    """Everything that runs here for interns."""

    def __init__(self, folder: Path, egress: Egress, doors: Doors) -> None:
        """Begin with none.

        Args:
            folder: Where the sockets of daemons are.
            egress: The ways out.
            doors: The ways in.
        """
        self._folder = folder
        self._egress = egress
        self._doors = doors
        self._running: dict[str, Running] = {}

    def get(self, intern_id: str) -> Running | None:
        """Return what runs for an intern."""
        return self._running.get(intern_id)

    def socket_of(self, intern_id: str) -> Path | None:
        """Return the socket that an intern's daemon listens on; None where none runs here."""
        running = self._running.get(intern_id)
        return None if running is None else running.listener

    def all(self) -> tuple[str, ...]:
        """Return the interns for which something runs."""
        return tuple(self._running)

    def count(self) -> int:
        """Return how many sandboxes run."""
        return sum(each.sandbox is not None for each in self._running.values())

    def count_full(self) -> int:
        """Return how many of them can write no more, since their disk is full."""
        running = [each.sandbox for each in self._running.values()]
        return sum(sandbox is not None and sandbox.disk_full for sandbox in running)

    def sweep(self) -> None:
        """Remove the sockets that a killed server has left."""
        for path in self._folder.glob("*.sock"):
            path.unlink(missing_ok=True)

    def begin(self, intern_id: str) -> Running:
        """Return what is to run for an intern, of which nothing is there yet."""
        running = Running(intern_id)
        self._running[intern_id] = running
        return running

    def listen(self, running: Running) -> socket.socket:
        """Return the socket that an intern's daemon is to listen on; made by us, not by it.

        Raises:
            OSError: It cannot be made.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / socket_name(running.intern_id)
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            listener.listen(_WAITING)
        except OSError:
            listener.close()
            raise
        running.listener = path
        return listener

    async def take_down(self, intern_id: str, seconds: float) -> None:
        """End all that runs for an intern; when this returns, nothing of it is left.

        It goes on where its caller is cancelled, and whoever asks next waits for it.

        Args:
            intern_id: The intern.
            seconds: How long its programs have.
        """
        running = self._running.get(intern_id)
        if running is None:
            return
        if running.ending is None or running.ending.done():
            running.ending = asyncio.create_task(self._take_down(running, seconds))
        elif running.sandbox is not None:
            await running.sandbox.stop(seconds)  # it may have less time now
        await asyncio.shield(running.ending)

    async def _take_down(self, running: Running, seconds: float) -> None:
        intern_id = running.intern_id
        try:
            if running.has_door:
                await self._doors.close(intern_id)
            if running.sandbox is not None:
                await running.sandbox.stop(seconds)
        finally:
            if running.ended is not None:
                running.ended.cancel()
            if running.listener is not None:
                running.listener.unlink(missing_ok=True)
            await self._egress.close(intern_id)
            if self._running.get(intern_id) is running:
                del self._running[intern_id]
