"""Who answers for an intern: the key that had it run.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0011"
down_revision = "0010"

_TABLES = ("api_keys", "interns", "generations", "reservations", "batches")


def upgrade() -> None:
    """Add the columns. Nobody answers for what was begun before: nobody knows who began it."""
    for table in _TABLES:
        op.add_column(table, sa.Column("payer_hash", c.text()))
    c.index_where("ix_generations_payer", "generations", "payer_hash", "payer_hash IS NOT NULL")
    op.create_index(op.f("ix_reservations_payer_hash"), "reservations", ["payer_hash"])
