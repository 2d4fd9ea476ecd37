"""Machines that run interns, and until when each is sure to be there.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "intern_machines",
        *c.texts("machine"),
        *c.integers("present_until"),
        c.primary("intern_machines", "machine"),
    )
