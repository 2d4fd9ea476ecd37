"""Keys whose text may change: an intern has one for its life.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column, and fill it: every key there is has the text that it was made with."""
    op.add_column("api_keys", sa.Column("secret_hash", c.text()))
    op.execute("UPDATE api_keys SET secret_hash = hash")
    op.create_index("uq_api_keys_secret_hash", "api_keys", ["secret_hash"], unique=True)
    op.create_index("ix_api_keys_intern", "api_keys", ["intern_id"])
