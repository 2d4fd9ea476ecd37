"""What chat services have sent already.

Revision ID: r0007
Revises: r0005
"""

from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0007"
down_revision = "r0006"

_TABLE = "intern_channel_events"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        _TABLE,
        *c.texts("intern_id event_id"),
        *c.integers("seen_at"),
        c.primary(_TABLE, "intern_id event_id"),
        c.refers(_TABLE, "intern_id", "interns.id"),
    )
    op.create_index("ix_intern_channel_events_seen", _TABLE, ["intern_id", "seen_at"])
