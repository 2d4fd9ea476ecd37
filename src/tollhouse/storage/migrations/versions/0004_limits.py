"""Limits: account types, limits of keys, refunds and adjustments, counters of days.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

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
    for name in ("refunded_nano", "adjusted_nano"):
        op.add_column("account_totals", _counter(name, server_default=sa.text("0")))
    _limits()
    _account_days()
    _usage_days()


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, _text(), nullable=False)


def _counter(name: str, server_default: sa.TextClause | None = None) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=server_default)


def _is_sqlite() -> bool:
    return op.get_context().dialect.name == "sqlite"


def _accounts() -> None:
    with op.batch_alter_table("accounts") as table:
        table.add_column(sa.Column("type", _text(), nullable=False, server_default="prepaid"))
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
    op.create_index(
        "ix_postings_adjustment_of_generation",
        "postings",
        ["generation_id"],
        sqlite_where=sa.text("kind = 'adjustment'"),
        postgresql_where=sa.text("kind = 'adjustment'"),
    )
    op.create_index(
        "uq_postings_usage_of_generation",
        "postings",
        ["generation_id"],
        unique=True,
        sqlite_where=sa.text("kind = 'usage'"),
        postgresql_where=sa.text("kind = 'usage'"),
    )


def _make_postings() -> None:
    op.create_table(
        "postings",
        _name("id"),
        _name("account_id"),
        _name("kind"),
        _name("source"),
        _name("destination"),
        _counter("amount_nano"),
        sa.Column("generation_id", _text()),
        sa.Column("idempotency_key", _text()),
        sa.Column("note", _text()),
        _counter("created_at"),
        sa.CheckConstraint(_KINDS, name=op.f("ck_postings_kind")),
        sa.CheckConstraint("amount_nano > 0", name=op.f("ck_postings_amount")),
        sa.CheckConstraint("source <> destination", name=op.f("ck_postings_two_sides")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_postings_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_postings")),
        sa.UniqueConstraint(
            "account_id", "idempotency_key", name=op.f("uq_postings_account_id_idempotency_key")
        ),
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
        _name("scope"),
        _name("owner_id"),
        sa.Column("limit_nano", sa.BigInteger),
        sa.Column("reset_interval", _text()),
        sa.Column("include_byok", sa.Boolean, nullable=False),
        _counter("updated_at"),
        sa.CheckConstraint("scope IN ('key', 'member', 'workspace')", name=op.f("ck_limits_scope")),
        sa.CheckConstraint("limit_nano >= 0", name=op.f("ck_limits_limit")),
        sa.CheckConstraint(
            "reset_interval IN ('daily', 'weekly', 'monthly')",
            name=op.f("ck_limits_reset_interval"),
        ),
        sa.PrimaryKeyConstraint("scope", "owner_id", name=op.f("pk_limits")),
    )


def _account_days() -> None:
    op.create_table(
        "account_days",
        _name("account_id"),
        _name("day"),
        _counter("free_requests"),
        sa.PrimaryKeyConstraint("account_id", "day", name=op.f("pk_account_days")),
    )
    op.execute(
        "INSERT INTO account_days (account_id, day, free_requests) "  # noqa: S608 - our own names
        f"SELECT account_id, {_day()}, count(*) FROM generations WHERE free_limited "
        f"GROUP BY account_id, {_day()}"
    )


def _usage_days() -> None:
    keys = ("account_id", "day", "key_hash", "model", "provider", "workspace_id")
    counters = (
        "requests",
        "prompt_tokens",
        "completion_tokens",
        "reasoning_tokens",
        "cached_tokens",
        "usage_nano",
        "byok_usage_nano",
    )
    op.create_table(
        "usage_days",
        *(_name(name) for name in keys),
        *(_counter(name) for name in counters),
        sa.PrimaryKeyConstraint(*keys, name=op.f("pk_usage_days")),
    )
    op.execute(
        f"INSERT INTO usage_days ({', '.join(keys + counters)}) "  # noqa: S608 - our own names
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
