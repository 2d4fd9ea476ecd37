"""Time and ids, of which tests have their own."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime


class Clock:
    """The machine's."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""
        return datetime.now(UTC)

    def new_id(self) -> str:
        """Return a new id."""
        return str(uuid.uuid4())
