"""The processes that charge, and up to which number their charges are booked.

Revision ID: r0005
Revises: r0004
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0005"
down_revision = "r0004"


def upgrade() -> None:
    """Make the table: whoever ran before has booked its charges, or left them in a journal."""
    op.create_table(
        "holders", *c.texts("id"), *c.integers("booked_seq"), c.primary("holders", "id")
    )
