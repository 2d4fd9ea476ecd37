"""First light: accounts, workspaces, users and keys; postings, generations and totals.

Revision ID: 0001
Revises: nothing
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    _identity()
    _accounting()


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _account() -> sa.Column[str]:
    return sa.Column("account_id", _text(), nullable=False)


def _account_exists(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["account_id"], ["accounts.id"], name=op.f(f"fk_{table}_account_id")
    )


def _identity() -> None:
    op.create_table(
        "accounts",
        sa.Column("id", _text(), nullable=False),
        sa.Column("name", _text(), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
    )
    _workspaces()
    op.create_table(
        "users",
        sa.Column("id", _text(), nullable=False),
        _account(),
        sa.Column("name", _text(), nullable=False),
        sa.Column("email", _text()),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
        _account_exists("users"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
    )
    op.create_index(op.f("ix_users_account_id"), "users", ["account_id"])
    _api_keys()


def _workspaces() -> None:
    op.create_table(
        "workspaces",
        sa.Column("id", _text(), nullable=False),
        _account(),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("name", _text(), nullable=False),
        sa.Column("slug", _text(), nullable=False),
        sa.Column("description", _text()),
        sa.Column("preferences", sa.JSON, nullable=False),
        sa.Column("created_by", _text()),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
        _account_exists("workspaces"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("account_id", "slug", name=op.f("uq_workspaces_account_id_slug")),
    )
    op.create_index(
        "uq_workspaces_default_of_account",
        "workspaces",
        ["account_id"],
        unique=True,
        sqlite_where=sa.text("is_default"),
        postgresql_where=sa.text("is_default"),
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("hash", _text(), nullable=False),
        sa.Column("kind", _text(), nullable=False),
        sa.Column("operator", sa.Boolean, nullable=False),
        _account(),
        sa.Column("workspace_id", _text(), nullable=False),
        sa.Column("creator_user_id", _text()),
        sa.Column("intern_id", _text()),
        sa.Column("name", _text(), nullable=False),
        sa.Column("label", _text(), nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger),
        sa.Column("deleted_at", sa.BigInteger),
        sa.CheckConstraint(
            "kind IN ('api', 'management', 'intern')", name=op.f("ck_api_keys_kind")
        ),
        sa.CheckConstraint(
            "(kind = 'intern') = (intern_id IS NOT NULL)", name=op.f("ck_api_keys_intern")
        ),
        sa.CheckConstraint(
            "kind = 'management' OR NOT operator", name=op.f("ck_api_keys_operator")
        ),
        _account_exists("api_keys"),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_api_keys_workspace_id")
        ),
        sa.ForeignKeyConstraint(
            ["creator_user_id"], ["users.id"], name=op.f("fk_api_keys_creator_user_id")
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_api_keys")),
    )
    op.create_index("ix_api_keys_workspace_created", "api_keys", ["workspace_id", "created_at"])


def _accounting() -> None:
    _postings()
    _generations()
    op.create_table(
        "account_totals",
        _account(),
        sa.Column("purchased_nano", sa.BigInteger, nullable=False),
        sa.Column("granted_nano", sa.BigInteger, nullable=False),
        sa.Column("used_nano", sa.BigInteger, nullable=False),
        _account_exists("account_totals"),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_account_totals")),
    )
    op.create_table(
        "key_totals",
        sa.Column("key_hash", _text(), nullable=False),
        sa.Column("usage_nano", sa.BigInteger, nullable=False),
        sa.Column("byok_usage_nano", sa.BigInteger, nullable=False),
        sa.Column("last_used_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_hash", name=op.f("pk_key_totals")),
    )
    op.create_table(
        "key_days",
        sa.Column("key_hash", _text(), nullable=False),
        sa.Column("day", _text(), nullable=False),
        sa.Column("usage_nano", sa.BigInteger, nullable=False),
        sa.Column("byok_usage_nano", sa.BigInteger, nullable=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("key_hash", "day", name=op.f("pk_key_days")),
    )


def _postings() -> None:
    op.create_table(
        "postings",
        sa.Column("id", _text(), nullable=False),
        _account(),
        sa.Column("kind", _text(), nullable=False),
        sa.Column("source", _text(), nullable=False),
        sa.Column("destination", _text(), nullable=False),
        sa.Column("amount_nano", sa.BigInteger, nullable=False),
        sa.Column("generation_id", _text()),
        sa.Column("idempotency_key", _text()),
        sa.Column("note", _text()),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("kind IN ('purchase', 'grant', 'usage')", name=op.f("ck_postings_kind")),
        sa.CheckConstraint("amount_nano > 0", name=op.f("ck_postings_amount")),
        sa.CheckConstraint("source <> destination", name=op.f("ck_postings_two_sides")),
        _account_exists("postings"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_postings")),
        sa.UniqueConstraint("generation_id", name=op.f("uq_postings_generation_id")),
        sa.UniqueConstraint(
            "account_id", "idempotency_key", name=op.f("uq_postings_account_id_idempotency_key")
        ),
    )
    op.create_index("ix_postings_account_created", "postings", ["account_id", "created_at"])


def _generations() -> None:
    op.create_table(
        "generations",
        sa.Column("id", _text(), nullable=False),
        _account(),
        sa.Column("workspace_id", _text(), nullable=False),
        sa.Column("key_hash", _text(), nullable=False),
        sa.Column("api_type", _text(), nullable=False),
        sa.Column("model", _text(), nullable=False),
        sa.Column("provider", _text()),
        sa.Column("provider_model", _text()),
        sa.Column("upstream_id", _text()),
        sa.Column("is_byok", sa.Boolean, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        sa.Column("finish_reason", _text()),
        sa.Column("native_finish_reason", _text()),
        sa.Column("cost_state", _text(), nullable=False),
        sa.Column("cost_nano", sa.BigInteger, nullable=False),
        sa.Column("provider_cost_nano", sa.BigInteger),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_write_1h_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("latency_ms", sa.BigInteger),
        sa.Column("generation_ms", sa.BigInteger),
        sa.Column("attempts", sa.JSON, nullable=False),
        sa.Column("http_referer", _text()),
        sa.Column("app_title", _text()),
        sa.Column("user_agent", _text()),
        sa.Column("external_user", _text()),
        sa.Column("session_id", _text()),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint(
            "cost_state IN ('exact', 'estimated', 'unknown')",
            name=op.f("ck_generations_cost_state"),
        ),
        sa.CheckConstraint("cost_nano >= 0", name=op.f("ck_generations_cost")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_generations")),
    )
    op.create_index("ix_generations_account_created", "generations", ["account_id", "created_at"])
    op.create_index(
        "ix_generations_unknown_cost",
        "generations",
        ["created_at"],
        sqlite_where=sa.text("cost_state = 'unknown'"),
        postgresql_where=sa.text("cost_state = 'unknown'"),
    )
