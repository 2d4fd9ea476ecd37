"""Access policies: what the requests of an account, a workspace or a key may reach.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "access_policies",
        *c.texts("scope owner_id"),
        sa.Column("policy", sa.JSON, nullable=False),
        *c.integers("updated_at"),
        c.check("access_policies", "scope", "scope IN ('account', 'workspace', 'key')"),
        c.primary("access_policies", "scope owner_id"),
    )
