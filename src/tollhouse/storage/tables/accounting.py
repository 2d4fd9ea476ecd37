"""The ledger's postings, the generations they pay for, and the totals derived from them.

`generations` has one row for each reply that a caller was owed; `postings` move an amount from
one ledger account to another in a single row, so that a one-sided entry cannot be written down.
`account_totals`, `key_totals` and the counters of days change in the transaction that writes the
rows they sum up, and can be recomputed from them. `key_totals` and `key_days` count a row with a
`payer_hash` to both of its keys; all other counters count it once.

`reservations` are credits set aside for what goes on for long: no posting, since nothing has moved.
"""

from __future__ import annotations

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, text

postings = sa.Table(
    "postings",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("kind", text(), nullable=False),
    sa.Column("source", text(), nullable=False),
    sa.Column("destination", text(), nullable=False),
    sa.Column("amount_nano", sa.BigInteger, nullable=False),
    sa.Column("generation_id", text()),
    sa.Column("idempotency_key", text()),
    sa.Column("note", text()),
    sa.Column("created_at", Instant, nullable=False),
    sa.UniqueConstraint("account_id", "idempotency_key"),
    sa.CheckConstraint(
        "kind IN ('purchase', 'grant', 'adjustment', 'refund', 'usage')", name="kind"
    ),
    sa.CheckConstraint("amount_nano > 0", name="amount"),
    sa.CheckConstraint("source <> destination", name="two_sides"),
)
sa.Index("ix_postings_account_created", postings.c.account_id, postings.c.created_at)
sa.Index(
    "ix_postings_adjustment_of_generation",
    postings.c.generation_id,
    sqlite_where=postings.c.kind == "adjustment",
    postgresql_where=postings.c.kind == "adjustment",
)
sa.Index(
    "uq_postings_usage_of_generation",
    postings.c.generation_id,
    unique=True,
    sqlite_where=postings.c.kind == "usage",
    postgresql_where=postings.c.kind == "usage",
)

generations = sa.Table(
    "generations",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), nullable=False),
    sa.Column("workspace_id", text(), nullable=False),
    sa.Column("key_hash", text(), nullable=False),
    sa.Column("payer_hash", text()),
    sa.Column("api_type", text(), nullable=False),
    sa.Column("model", text(), nullable=False),
    sa.Column("provider", text()),
    sa.Column("provider_model", text()),
    sa.Column("upstream_id", text()),
    sa.Column("is_byok", sa.Boolean, nullable=False),
    sa.Column("streamed", sa.Boolean, nullable=False),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Column("finish_reason", text()),
    sa.Column("native_finish_reason", text()),
    sa.Column("cost_state", text(), nullable=False),
    sa.Column("cost_nano", sa.BigInteger, nullable=False),
    sa.Column("provider_cost_nano", sa.BigInteger),
    sa.Column("input_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_write_1h_tokens", sa.BigInteger, nullable=False),
    sa.Column("output_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("images", sa.BigInteger),
    sa.Column("free_limited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("latency_ms", sa.BigInteger),
    sa.Column("generation_ms", sa.BigInteger),
    sa.Column("attempts", sa.JSON, nullable=False),
    sa.Column("http_referer", text()),
    sa.Column("app_title", text()),
    sa.Column("user_agent", text()),
    sa.Column("external_user", text()),
    sa.Column("session_id", text()),
    sa.Column("categories", text()),
    sa.Column("trace", text()),
    sa.Column("metadata", text()),
    sa.Column("created_at", Instant, nullable=False),
    sa.CheckConstraint("cost_state IN ('exact', 'estimated', 'unknown')", name="cost_state"),
    sa.CheckConstraint("cost_nano >= 0", name="cost"),
)
sa.Index("ix_generations_account_created", generations.c.account_id, generations.c.created_at)
sa.Index(
    "ix_generations_unknown_cost",
    generations.c.created_at,
    sqlite_where=generations.c.cost_state == "unknown",
    postgresql_where=generations.c.cost_state == "unknown",
)
sa.Index(
    "ix_generations_payer",
    generations.c.payer_hash,
    sqlite_where=generations.c.payer_hash.is_not(None),
    postgresql_where=generations.c.payer_hash.is_not(None),
)

account_totals = sa.Table(
    "account_totals",
    METADATA,
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), primary_key=True),
    sa.Column("purchased_nano", sa.BigInteger, nullable=False),
    sa.Column("granted_nano", sa.BigInteger, nullable=False),
    sa.Column("used_nano", sa.BigInteger, nullable=False),
    sa.Column("refunded_nano", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    sa.Column("adjusted_nano", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)

account_days = sa.Table(
    "account_days",
    METADATA,
    sa.Column("account_id", text(), primary_key=True),
    sa.Column("day", text(), primary_key=True),
    sa.Column("free_requests", sa.BigInteger, nullable=False),
)

key_totals = sa.Table(
    "key_totals",
    METADATA,
    sa.Column("key_hash", text(), primary_key=True),
    sa.Column("usage_nano", sa.BigInteger, nullable=False),
    sa.Column("byok_usage_nano", sa.BigInteger, nullable=False),
    sa.Column("last_used_at", Instant, nullable=False),
)

key_days = sa.Table(
    "key_days",
    METADATA,
    sa.Column("key_hash", text(), primary_key=True),
    sa.Column("day", text(), primary_key=True),
    sa.Column("usage_nano", sa.BigInteger, nullable=False),
    sa.Column("byok_usage_nano", sa.BigInteger, nullable=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
)

usage_days = sa.Table(
    "usage_days",
    METADATA,
    sa.Column("account_id", text(), primary_key=True),
    sa.Column("day", text(), primary_key=True),
    sa.Column("key_hash", text(), primary_key=True),
    sa.Column("model", text(), primary_key=True),
    sa.Column("provider", text(), primary_key=True),
    sa.Column("workspace_id", text(), primary_key=True),
    sa.Column("requests", sa.BigInteger, nullable=False),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("usage_nano", sa.BigInteger, nullable=False),
    sa.Column("byok_usage_nano", sa.BigInteger, nullable=False),
)

limits = sa.Table(
    "limits",
    METADATA,
    sa.Column("scope", text(), primary_key=True),
    sa.Column("owner_id", text(), primary_key=True),
    sa.Column("limit_nano", sa.BigInteger),
    sa.Column("reset_interval", text()),
    sa.Column("include_byok", sa.Boolean, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.CheckConstraint("scope IN ('key', 'member', 'workspace')", name="scope"),
    sa.CheckConstraint("limit_nano >= 0", name="limit"),
    sa.CheckConstraint("reset_interval IN ('daily', 'weekly', 'monthly')", name="reset_interval"),
)

reservations = sa.Table(
    "reservations",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("key_hash", text(), nullable=False, index=True),
    sa.Column("payer_hash", text(), index=True),
    sa.Column("amount_nano", sa.BigInteger, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.CheckConstraint("amount_nano >= 0", name="amount"),
)
