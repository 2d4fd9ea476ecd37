"""Limits: account types, limits of keys, refunds and adjustments, counters of days.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0004"
down_revision = "0003"

_KINDS = "kind IN ('purchase', 'grant', 'adjustment', 'refund', 'usage')"
_TYPES = "type IN ('prepaid', 'enterprise', 'subscription', 'invoice')"
_POSTING_COLUMNS = (
    "id, account_id, kind, source, destination, amount_nano, generation_id, idempotency_key, note, "
    "created_at"
)


def upgrade() -> None:
    """Add what is new, and count what was booked before."""
    _accounts()
    _postings()
    _generations()
    for column in c.counters("refunded_nano adjusted_nano"):
        op.add_column("account_totals", column)
    _limits()
    _account_days()
    _usage_days()


def _is_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _accounts() -> None:
    with op.batch_alter_table("accounts") as table:
        table.add_column(sa.Column("type", c.text(), nullable=False, server_default="prepaid"))
        table.add_column(
            sa.Column("free_limits_exempt", sa.Boolean, nullable=False, server_default=sa.false())
        )
        table.create_check_constraint(op.f("ck_accounts_type"), _TYPES)


def _postings() -> None:
    if _is_sqlite():
        # A constraint of an SQLite table changes with the table alone.
        op.rename_table("postings", "postings_before")
        op.drop_index("ix_postings_account_created")
        _make_postings()
        op.execute(
            f"INSERT INTO postings ({_POSTING_COLUMNS}) "  # noqa: S608 - our own names
            f"SELECT {_POSTING_COLUMNS} FROM postings_before"
        )
        op.drop_table("postings_before")
        op.create_index("ix_postings_account_created", "postings", ["account_id", "created_at"])
    else:
        op.drop_constraint(op.f("ck_postings_kind"), "postings")
        op.create_check_constraint(op.f("ck_postings_kind"), "postings", _KINDS)
        op.drop_constraint(op.f("uq_postings_generation_id"), "postings")
    c.index_where(
        "ix_postings_adjustment_of_generation", "postings", "generation_id", "kind = 'adjustment'"
    )
    c.index_where(
        "uq_postings_usage_of_generation",
        "postings",
        "generation_id",
        "kind = 'usage'",
        unique=True,
    )


def _make_postings() -> None:
    op.create_table(
        "postings",
        *c.texts("id account_id kind source destination"),
        *c.integers("amount_nano"),
        *c.optional_texts("generation_id idempotency_key note"),
        *c.integers("created_at"),
        c.check("postings", "kind", _KINDS),
        c.check("postings", "amount", "amount_nano > 0"),
        c.check("postings", "two_sides", "source <> destination"),
        c.refers("postings", "account_id", "accounts.id"),
        c.primary("postings", "id"),
        c.unique("postings", "account_id idempotency_key"),
    )


def _generations() -> None:
    op.add_column("generations", sa.Column("images", sa.BigInteger))
    op.add_column(
        "generations",
        sa.Column("free_limited", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    # Every request to a free model counted until now.
    op.execute("UPDATE generations SET free_limited = TRUE WHERE model LIKE '%\\:free'")


def _limits() -> None:
    op.create_table(
        "limits",
        *c.texts("scope owner_id"),
        *c.optional_integers("limit_nano"),
        *c.optional_texts("reset_interval"),
        sa.Column("include_byok", sa.Boolean, nullable=False),
        *c.integers("updated_at"),
        c.check("limits", "scope", "scope IN ('key', 'member', 'workspace')"),
        c.check("limits", "limit", "limit_nano >= 0"),
        c.check("limits", "reset_interval", "reset_interval IN ('daily', 'weekly', 'monthly')"),
        c.primary("limits", "scope owner_id"),
    )


def _account_days() -> None:
    op.create_table(
        "account_days",
        *c.texts("account_id day"),
        *c.integers("free_requests"),
        c.primary("account_days", "account_id day"),
    )
    op.execute(
        "INSERT INTO account_days (account_id, day, free_requests) "  # noqa: S608 - our own names
        f"SELECT account_id, {_day()}, count(*) FROM generations WHERE free_limited "
        f"GROUP BY account_id, {_day()}"
    )


def _usage_days() -> None:
    keys = "account_id day key_hash model provider workspace_id"
    sums = (
        "requests prompt_tokens completion_tokens reasoning_tokens cached_tokens usage_nano "
        "byok_usage_nano"
    )
    op.create_table("usage_days", *c.texts(keys), *c.integers(sums), c.primary("usage_days", keys))
    op.execute(
        f"INSERT INTO usage_days ({', '.join(f'{keys} {sums}'.split())}) "  # noqa: S608 - our own names
        f"SELECT account_id, {_day()}, key_hash, model, coalesce(provider, ''), workspace_id, "
        "count(*), "
        "sum(input_tokens + cache_read_tokens + cache_write_tokens + cache_write_1h_tokens), "
        "sum(output_tokens), sum(reasoning_tokens), sum(cache_read_tokens), "
        "sum(CASE WHEN is_byok THEN 0 ELSE cost_nano END), "
        "sum(CASE WHEN is_byok THEN coalesce(provider_cost_nano, 0) ELSE 0 END) "
        "FROM generations "
        f"GROUP BY account_id, {_day()}, key_hash, model, coalesce(provider, ''), workspace_id"
    )


def _day() -> str:
    """Return the SQL of a generation's UTC day as text."""
    if _is_sqlite():
        return "date(created_at / 1000, 'unixepoch')"
    return "to_char(to_timestamp(created_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
