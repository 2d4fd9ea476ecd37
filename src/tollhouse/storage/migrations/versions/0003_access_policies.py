"""Access policies: what the requests of an account, a workspace or a key may reach.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "access_policies",
        sa.Column("scope", _text(), nullable=False),
        sa.Column("owner_id", _text(), nullable=False),
        sa.Column("policy", sa.JSON, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "scope IN ('account', 'workspace', 'key')", name=op.f("ck_access_policies_scope")
        ),
        sa.PrimaryKeyConstraint("scope", "owner_id", name=op.f("pk_access_policies")),
    )


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
