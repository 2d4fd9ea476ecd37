"""Interns in chat services.

Revision ID: r0003
Revises: r0002
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0003"
down_revision = "r0002"

_TABLE = "intern_channels"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        _TABLE,
        *c.texts("intern_id service"),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("sealed_tokens", sa.LargeBinary),
        *c.integers("updated_at"),
        c.primary(_TABLE, "intern_id"),
        c.refers(_TABLE, "intern_id", "interns.id"),
    )
