"""Attribution: what a request says of itself in its body is kept with the generation.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns."""
    for column in c.optional_texts("categories trace metadata"):
        op.add_column("generations", column)
