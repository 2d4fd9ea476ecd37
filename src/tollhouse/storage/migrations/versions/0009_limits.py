"""Limits of workspaces, people and end users: one for each interval; what these use a day.

Revision ID: r0009
Revises: r0008
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0009"
down_revision = "r0008"

_DAYS = {
    "sqlite": "date(created_at / 1000.0, 'unixepoch')",
    "postgresql": "to_char(to_timestamp(created_at / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
}
_OWNERS = {
    "workspace": ("workspace_id", "true"),
    "end_user": ("workspace_id || ':' || external_user", "external_user <> ''"),
}
_SPEND = "sum(cost_nano), sum(CASE WHEN is_byok THEN coalesce(provider_cost_nano, 0) ELSE 0 END)"


def upgrade() -> None:
    """Make the tables: the limits of keys stay, and days count what is booked."""
    facts = "scope, owner_id, limit_nano, reset_interval, include_byok, updated_at"
    # Neither database changes a primary key in place.
    op.execute(sa.text(f"CREATE TABLE limits_of_keys AS SELECT {facts} FROM limits"))  # noqa: S608 - ours
    op.drop_table("limits")
    op.create_table(
        "limits",
        *c.texts("scope owner_id reset_interval"),
        *c.optional_texts("id"),
        *c.optional_integers("limit_nano"),
        sa.Column("include_byok", sa.Boolean, nullable=False),
        *c.integers("created_at updated_at"),
        c.primary("limits", "scope owner_id reset_interval"),
        c.check("limits", "scope", "scope IN ('key', 'member', 'end_user', 'workspace')"),
        c.check("limits", "limit", "limit_nano >= 0"),
        c.check(
            "limits",
            "reset_interval",
            "reset_interval IN ('daily', 'weekly', 'monthly', 'lifetime')",
        ),
    )
    op.execute(
        sa.text(
            f"INSERT INTO limits ({facts}, created_at) SELECT scope, owner_id, limit_nano,"  # noqa: S608 - ours
            " coalesce(reset_interval, 'lifetime'), include_byok, updated_at, updated_at"
            " FROM limits_of_keys"
        )
    )
    op.drop_table("limits_of_keys")
    op.create_table(
        "owner_days",
        *c.texts("account_id scope owner_id day"),
        *c.integers("usage_nano byok_usage_nano"),
        c.primary("owner_days", "account_id scope owner_id day"),
    )
    day = _DAYS[op.get_bind().dialect.name]
    for scope, (owner, counted) in _OWNERS.items():
        op.execute(
            sa.text(
                "INSERT INTO owner_days"  # noqa: S608 - ours
                " (account_id, scope, owner_id, day, usage_nano, byok_usage_nano)"
                f" SELECT account_id, '{scope}', {owner}, {day}, {_SPEND} FROM generations"
                f" WHERE {counted} GROUP BY account_id, {owner}, {day}"
            ).execution_options(no_parameters=True)
        )
    op.add_column("reservations", *c.optional_texts("workspace_id"))
    op.execute(
        sa.text(
            "UPDATE reservations SET workspace_id ="
            " (SELECT workspace_id FROM api_keys WHERE hash = reservations.key_hash)"
        )
    )
    op.create_index("ix_reservations_workspace_id", "reservations", ["workspace_id"])
    c.index_where(
        "ix_api_keys_creator", "api_keys", "creator_user_id", "creator_user_id IS NOT NULL"
    )
