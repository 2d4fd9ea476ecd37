"""Reservations: credits that are set aside for what goes on for long.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "reservations",
        *c.texts("id account_id key_hash"),
        *c.integers("amount_nano created_at"),
        c.check("reservations", "amount", "amount_nano >= 0"),
        c.refers("reservations", "account_id", "accounts.id"),
        c.primary("reservations", "id"),
    )
    op.create_index(op.f("ix_reservations_account_id"), "reservations", ["account_id"])
    op.create_index(op.f("ix_reservations_key_hash"), "reservations", ["key_hash"])
