"""What interns need from those who act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tollhouse.storage.transaction import Read


class News(Protocol):
    """Tells those who wait that something is to be done with an intern, or was done."""

    def ring(self, intern_id: str) -> None:
        """Say so; does not wait for anybody."""
        ...

    def listening(self, intern_id: str) -> AbstractContextManager[asyncio.Event]:
        """Return what is set whenever somebody says so of an intern, from now on."""
        ...

    async def any_rung(self, seconds: float) -> frozenset[str]:
        """Wait until somebody says so of any, but only so long.

        Returns:
            Of which it was said since the last time.
        """
        ...


class Crew(Protocol):
    """Those who bring interns where they are wanted."""

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        """Make sure that somebody is at work, on this machine or on another.

        Args:
            read: The transaction.
            machine: The machine that is needed; None where any would do.

        Raises:
            ServiceUnreachable: Nobody is.
        """
        ...

    def expect_boot(self) -> None:
        """Begin what a boot would have to wait for: one is about to be asked for."""
        ...

    def is_here(self, machine: str) -> bool:
        """Tell whether it runs what is on a machine."""
        ...


class Rooms(Protocol):
    """Where the daemons of interns listen."""

    def socket_of(self, intern_id: str) -> Path | None:
        """Return the socket of an intern's daemon; None where it does not run on this machine."""
        ...
