"""The record also tells of changes to accounts, workspaces, users, keys, policies and credits.

Revision ID: 0014
Revises: 0013
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add what was changed, from what to what; earlier rows and their hashes stay as they are."""
    op.add_column("audit_rows", sa.Column("object_id", c.text()))
    op.add_column("audit_rows", sa.Column("changes", sa.JSON))
