"""Requests with own provider keys, counted a day; what batches with them reserve.

Revision ID: r0006
Revises: r0005
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0006"
down_revision = "r0005"

_DAYS = {
    "sqlite": "date(created_at / 1000.0, 'unixepoch')",
    "postgresql": "to_char(to_timestamp(created_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
}


def upgrade() -> None:
    """Add the columns; days count what is booked, and limits hold what is reserved."""
    op.add_column("account_days", *c.counters("byok_requests"))
    op.add_column("reservations", *c.counters("with_own_nano"))
    op.add_column("batches", c.switch("only_own_keys"))
    op.execute(sa.text("UPDATE reservations SET with_own_nano = amount_nano"))
    day = _DAYS[op.get_bind().dialect.name]
    op.execute(
        sa.text(
            "INSERT INTO account_days (account_id, day, free_requests, byok_requests)"  # noqa: S608 - ours
            f" SELECT account_id, {day}, 0, count(*) FROM generations WHERE is_byok"
            f" GROUP BY account_id, {day}"
            " ON CONFLICT (account_id, day) DO UPDATE SET byok_requests = excluded.byok_requests"
        )
    )
