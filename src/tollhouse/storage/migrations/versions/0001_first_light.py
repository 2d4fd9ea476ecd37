"""First light: accounts, workspaces, users and keys; postings, generations and totals.

Revision ID: 0001
Revises: nothing
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    _identity()
    _accounting()


def _identity() -> None:
    op.create_table(
        "accounts",
        *c.texts("id name"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.primary("accounts", "id"),
    )
    _workspaces()
    op.create_table(
        "users",
        *c.texts("id account_id name"),
        *c.optional_texts("email"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.refers("users", "account_id", "accounts.id"),
        c.primary("users", "id"),
    )
    op.create_index(op.f("ix_users_account_id"), "users", ["account_id"])
    _api_keys()


def _workspaces() -> None:
    op.create_table(
        "workspaces",
        *c.texts("id account_id"),
        sa.Column("is_default", sa.Boolean, nullable=False),
        *c.texts("name slug"),
        *c.optional_texts("description"),
        sa.Column("preferences", sa.JSON, nullable=False),
        *c.optional_texts("created_by"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.refers("workspaces", "account_id", "accounts.id"),
        c.primary("workspaces", "id"),
        c.unique("workspaces", "account_id slug"),
    )
    c.index_where(
        "uq_workspaces_default_of_account", "workspaces", "account_id", "is_default", unique=True
    )


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        *c.texts("hash kind"),
        sa.Column("operator", sa.Boolean, nullable=False),
        *c.texts("account_id workspace_id"),
        *c.optional_texts("creator_user_id intern_id"),
        *c.texts("name label"),
        sa.Column("disabled", sa.Boolean, nullable=False),
        *c.optional_integers("expires_at"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at deleted_at"),
        c.check("api_keys", "kind", "kind IN ('api', 'management', 'intern')"),
        c.check("api_keys", "intern", "(kind = 'intern') = (intern_id IS NOT NULL)"),
        c.check("api_keys", "operator", "kind = 'management' OR NOT operator"),
        c.refers("api_keys", "account_id", "accounts.id"),
        c.refers("api_keys", "workspace_id", "workspaces.id"),
        c.refers("api_keys", "creator_user_id", "users.id"),
        c.primary("api_keys", "hash"),
    )
    op.create_index("ix_api_keys_workspace_created", "api_keys", ["workspace_id", "created_at"])


def _accounting() -> None:
    _postings()
    _generations()
    op.create_table(
        "account_totals",
        *c.texts("account_id"),
        *c.integers("purchased_nano granted_nano used_nano"),
        c.refers("account_totals", "account_id", "accounts.id"),
        c.primary("account_totals", "account_id"),
    )
    op.create_table(
        "key_totals",
        *c.texts("key_hash"),
        *c.integers("usage_nano byok_usage_nano last_used_at"),
        c.primary("key_totals", "key_hash"),
    )
    op.create_table(
        "key_days",
        *c.texts("key_hash day"),
        *c.integers("usage_nano byok_usage_nano requests"),
        c.primary("key_days", "key_hash day"),
    )


def _postings() -> None:
    op.create_table(
        "postings",
        *c.texts("id account_id kind source destination"),
        *c.integers("amount_nano"),
        *c.optional_texts("generation_id idempotency_key note"),
        *c.integers("created_at"),
        c.check("postings", "kind", "kind IN ('purchase', 'grant', 'usage')"),
        c.check("postings", "amount", "amount_nano > 0"),
        c.check("postings", "two_sides", "source <> destination"),
        c.refers("postings", "account_id", "accounts.id"),
        c.primary("postings", "id"),
        c.unique("postings", "generation_id"),
        c.unique("postings", "account_id idempotency_key"),
    )
    op.create_index("ix_postings_account_created", "postings", ["account_id", "created_at"])


def _generations() -> None:
    op.create_table(
        "generations",
        *c.texts("id account_id workspace_id key_hash api_type model"),
        *c.optional_texts("provider provider_model upstream_id"),
        sa.Column("is_byok", sa.Boolean, nullable=False),
        sa.Column("streamed", sa.Boolean, nullable=False),
        sa.Column("cancelled", sa.Boolean, nullable=False),
        *c.optional_texts("finish_reason native_finish_reason"),
        *c.texts("cost_state"),
        *c.integers("cost_nano"),
        *c.optional_integers("provider_cost_nano"),
        *c.integers(
            "input_tokens cache_read_tokens cache_write_tokens cache_write_1h_tokens "
            "output_tokens reasoning_tokens"
        ),
        *c.optional_integers("latency_ms generation_ms"),
        sa.Column("attempts", sa.JSON, nullable=False),
        *c.optional_texts("http_referer app_title user_agent external_user session_id"),
        *c.integers("created_at"),
        c.check("generations", "cost_state", "cost_state IN ('exact', 'estimated', 'unknown')"),
        c.check("generations", "cost", "cost_nano >= 0"),
        c.primary("generations", "id"),
    )
    op.create_index("ix_generations_account_created", "generations", ["account_id", "created_at"])
    c.index_where(
        "ix_generations_unknown_cost", "generations", "created_at", "cost_state = 'unknown'"
    )
