"""What several processes on one database may spend: budgets, and what each was granted of them.

Revision ID: r0008
Revises: r0007
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0008"
down_revision = "r0007"


def upgrade() -> None:
    """Make the tables; a budget gets its row when it is first spent by one of several."""
    for column in (
        sa.Column("machine", c.text(), nullable=False, server_default=""),
        c.switch("live"),
        *c.counters("epoch op started_at"),
    ):
        op.add_column("holders", column)
    op.create_table(
        "budgets",
        *c.texts("scope id period"),
        *c.optional_integers("limit_nano"),
        c.switch("include_byok"),
        *c.counters("used_nano reserved_nano leased_nano"),
        c.primary("budgets", "scope id period"),
    )
    op.create_table(
        "leases",
        *c.texts("holder scope id period"),
        *c.counters("granted_nano wanted_nano wanted_since wanted_until"),
        c.primary("leases", "holder scope id period"),
    )
    op.create_table(
        "rates", *c.texts("account_id model taken"), c.primary("rates", "account_id model")
    )
    op.create_index("ix_leases_scope_id_period", "leases", ["scope", "id", "period"])
