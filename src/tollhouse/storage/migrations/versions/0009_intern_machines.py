"""Machines that run interns, and until when each is sure to be there.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the table."""
    machine = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "intern_machines",
        sa.Column("machine", machine, nullable=False),
        sa.Column("present_until", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("machine", name=op.f("pk_intern_machines")),
    )
