"""The ledger's postings, the generations they pay for, and the totals derived from them.

`generations` has one row for each reply that a caller was owed; `postings` move an amount from
one ledger account to another in a single row, so that a one-sided entry cannot be written down.
`account_totals`, `key_totals` and the counters of days change in the transaction that writes the
rows they sum up, and can be recomputed from them. `key_totals` and `key_days` count a row with a
`payer_hash` to both of its keys; all other counters count it once.

`holders` are the processes that charge, each from its start to its end, and the number of the last
of its charges that is in the tables above; it rises in the transaction that books them.

`budgets` are what several processes on one database spend together: an account's balance, a key's
limit of a window (`period`: its first day and the day after its last, empty for ever). A row is
made when it is first needed, and then changes with what it is derived from. `leases` are what each
holder was granted of them, and what it lacks: docs/development/budgets-over-processes.md. `rates`
says when an account's latest requests to a model (empty: to all free ones) were let through: whole
milliseconds, separated by spaces.

`reservations` are credits set aside for what goes on for long: no posting, since nothing has moved.
"""

import sqlalchemy as sa

from tollhouse.storage.tables.base import (
    METADATA,
    Instant,
    counters,
    integers,
    optional_texts,
    partial_index,
    text,
    text_keys,
    texts,
)

postings = sa.Table(
    "postings",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    *texts("kind source destination"),
    sa.Column("amount_nano", sa.BigInteger, nullable=False),
    *optional_texts("generation_id idempotency_key note"),
    sa.Column("created_at", Instant, nullable=False),
    sa.UniqueConstraint("account_id", "idempotency_key"),
    sa.CheckConstraint(
        "kind IN ('purchase', 'grant', 'adjustment', 'refund', 'usage')", name="kind"
    ),
    sa.CheckConstraint("amount_nano > 0", name="amount"),
    sa.CheckConstraint("source <> destination", name="two_sides"),
)
sa.Index("ix_postings_account_created", postings.c.account_id, postings.c.created_at)
partial_index(
    "ix_postings_adjustment_of_generation",
    postings.c.generation_id,
    where=postings.c.kind == "adjustment",
)
partial_index(
    "uq_postings_usage_of_generation",
    postings.c.generation_id,
    unique=True,
    where=postings.c.kind == "usage",
)

generations = sa.Table(
    "generations",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    *texts("account_id workspace_id key_hash"),
    sa.Column("payer_hash", text()),
    *texts("api_type model"),
    *optional_texts("provider provider_model upstream_id"),
    sa.Column("is_byok", sa.Boolean, nullable=False),
    sa.Column("streamed", sa.Boolean, nullable=False),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    *optional_texts("finish_reason native_finish_reason"),
    sa.Column("cost_state", text(), nullable=False),
    sa.Column("cost_nano", sa.BigInteger, nullable=False),
    sa.Column("provider_cost_nano", sa.BigInteger),
    *integers(
        "input_tokens cache_read_tokens cache_write_tokens cache_write_1h_tokens output_tokens "
        "reasoning_tokens"
    ),
    sa.Column("images", sa.BigInteger),
    sa.Column("free_limited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("latency_ms", sa.BigInteger),
    sa.Column("generation_ms", sa.BigInteger),
    sa.Column("attempts", sa.JSON, nullable=False),
    *optional_texts(
        "http_referer app_title user_agent external_user session_id categories trace metadata"
    ),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("estimate_nano", sa.BigInteger),
    sa.CheckConstraint(
        "cost_state IN ('exact', 'estimated', 'unknown', 'interrupted')", name="cost_state"
    ),
    sa.CheckConstraint("cost_nano >= 0", name="cost"),
)
sa.Index("ix_generations_account_created", generations.c.account_id, generations.c.created_at)
partial_index(
    "ix_generations_unknown_cost",
    generations.c.created_at,
    where=generations.c.cost_state == "unknown",
)
partial_index(
    "ix_generations_interrupted",
    generations.c.created_at,
    where=generations.c.cost_state == "interrupted",
)
partial_index(
    "ix_generations_payer", generations.c.payer_hash, where=generations.c.payer_hash.is_not(None)
)

holders = sa.Table(
    "holders",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("booked_seq", sa.BigInteger, nullable=False),
    sa.Column("machine", text(), nullable=False, server_default=""),
    sa.Column("live", sa.Boolean, nullable=False, server_default=sa.false()),
    *counters("epoch op started_at"),
)

_BUDGET = "scope id period"

budgets = sa.Table(
    "budgets",
    METADATA,
    *text_keys(_BUDGET),
    sa.Column("limit_nano", sa.BigInteger),
    sa.Column("include_byok", sa.Boolean, nullable=False, server_default=sa.false()),
    *counters("used_nano reserved_nano leased_nano"),
)

leases = sa.Table(
    "leases",
    METADATA,
    *text_keys(f"holder {_BUDGET}"),
    *counters("granted_nano wanted_nano wanted_since wanted_until"),
)
rates = sa.Table("rates", METADATA, *text_keys("account_id model"), *texts("taken"))
sa.Index("ix_leases_scope_id_period", leases.c.scope, leases.c.id, leases.c.period)

account_totals = sa.Table(
    "account_totals",
    METADATA,
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), primary_key=True),
    *integers("purchased_nano granted_nano used_nano"),
    *counters("refunded_nano adjusted_nano"),
)

account_days = sa.Table(
    "account_days",
    METADATA,
    *text_keys("account_id day"),
    sa.Column("free_requests", sa.BigInteger, nullable=False),
    *counters("byok_requests"),
)

key_totals = sa.Table(
    "key_totals",
    METADATA,
    sa.Column("key_hash", text(), primary_key=True),
    *integers("usage_nano byok_usage_nano"),
    sa.Column("last_used_at", Instant, nullable=False),
)

key_days = sa.Table(
    "key_days",
    METADATA,
    *text_keys("key_hash day"),
    *integers("usage_nano byok_usage_nano requests"),
)

usage_days = sa.Table(
    "usage_days",
    METADATA,
    *text_keys("account_id day key_hash model provider workspace_id"),
    *integers(
        "requests prompt_tokens completion_tokens reasoning_tokens cached_tokens usage_nano "
        "byok_usage_nano"
    ),
)

limits = sa.Table(
    "limits",
    METADATA,
    *text_keys("scope owner_id"),
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
    *counters("with_own_nano"),
    sa.CheckConstraint("amount_nano >= 0", name="amount"),
)
