"""Whether requests should be sent to this process, and which of them wait while it starts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from tollhouse.storage.database import Database


class Readiness:
    """Ready while the database answers and nobody told us to stop."""

    def __init__(self, database: Database) -> None:
        """Watch a database."""
        self._database = database
        self.stopping = False

    async def problems(self) -> dict[str, str]:
        """Return what stands in the way, a name and a reason each; nothing when ready."""
        problems: dict[str, str] = {}
        if self.stopping:
            problems["shutdown"] = "the gateway is stopping"
        try:
            await self._database.ping()
        except (OSError, SQLAlchemyError) as error:
            problems["database"] = f"it does not answer ({type(error).__name__})"
        return problems


class Recovery:
    """Keeps requests back while what a killed server left of their kind is being tidied."""

    PATIENCE_SECONDS: Final = 5.0
    """Half of the time that an operation on interns may take."""

    def __init__(self) -> None:
        """Begin with nothing to tidy."""
        self._over = asyncio.Event()
        self._over.set()

    def begin(self) -> None:
        """Keep requests back from now on."""
        self._over.clear()

    def finish(self) -> None:
        """Let those that wait go on, and all later ones pass."""
        self._over.set()

    async def wait(self) -> None:
        """Return when it is over.

        Raises:
            Unavailable: It takes longer than a client should wait.
        """
        if self._over.is_set():
            return
        try:
            async with asyncio.timeout(self.PATIENCE_SECONDS):
                await self._over.wait()
        except TimeoutError:
            message = "The gateway has just started and is still recovering; try again in a moment."
            raise Unavailable(message, retry_after=1) from None
