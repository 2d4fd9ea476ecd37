"""Whether requests should be sent to this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

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
