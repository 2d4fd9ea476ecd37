"""What changes are notified of, with a version that each of them raises.

Revision ID: r0010
Revises: r0008
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0010"
down_revision = "r0008"


def upgrade() -> None:
    """Make the table; a topic gets its row with its first change."""
    op.create_table("topics", *c.texts("name"), *c.integers("version"), c.primary("topics", "name"))
