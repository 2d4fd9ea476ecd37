"""Reservations: credits that are set aside for what goes on for long.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "reservations",
        sa.Column("id", _text(), nullable=False),
        sa.Column("account_id", _text(), nullable=False),
        sa.Column("key_hash", _text(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("amount_nano >= 0", name=op.f("ck_reservations_amount")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_reservations_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_account_id"), "reservations", ["account_id"])
    op.create_index(op.f("ix_reservations_key_hash"), "reservations", ["key_hash"])


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
