"""Who answers for an intern: the key that had it run.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_TABLES = ("api_keys", "interns", "generations", "reservations", "batches")


def upgrade() -> None:
    """Add the columns. Nobody answers for what was begun before: nobody knows who began it."""
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    for table in _TABLES:
        op.add_column(table, sa.Column("payer_hash", text))
    is_paid = sa.text("payer_hash IS NOT NULL")
    op.create_index(
        "ix_generations_payer",
        "generations",
        ["payer_hash"],
        sqlite_where=is_paid,
        postgresql_where=is_paid,
    )
    op.create_index(op.f("ix_reservations_payer_hash"), "reservations", ["payer_hash"])
