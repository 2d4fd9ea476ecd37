"""How the items of a chunk failed that have no result yet.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column; what ran alone before is not known to have ended a worker."""
    op.add_column("batch_chunks", sa.Column("failures", sa.JSON))
    op.execute("UPDATE batch_chunks SET suspect = NULL")
