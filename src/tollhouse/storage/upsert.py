"""INSERT with ON CONFLICT, which both databases have and SQLAlchemy spells once for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    import sqlalchemy as sa

    from tollhouse.storage.transaction import Write


def insert(write: Write, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that takes `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return postgresql.insert(table) if write.dialect == "postgresql" else sqlite.insert(table)
