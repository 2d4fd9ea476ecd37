"""When the chunks of a batch that has ended are compressed.

Revision ID: 0015
Revises: 0014
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the column; the chunks of batches that ended before were compressed at once."""
    op.add_column("batches", sa.Column("compress_at", sa.BigInteger))
