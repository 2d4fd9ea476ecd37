"""Batches, the chunks that their items are stored in, and the parts of their results.

The items themselves and their results are blobs. Who works on a chunk holds its token until
`lease_until`; a part counts only if it was written under the token that the chunk has then.
"""

from __future__ import annotations

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, text


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


_STATUSES = (
    "('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', "
    "'cancelling', 'cancelled')"
)

batches = sa.Table(
    "batches",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("workspace_id", text(), nullable=False),
    sa.Column("key_hash", text(), nullable=False),
    sa.Column("payer_hash", text()),
    sa.Column("endpoint", text(), nullable=False),
    sa.Column("model", text(), nullable=False),
    sa.Column("wish", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("attribution", sa.JSON, nullable=False),
    sa.Column("digest", text(), nullable=False),
    sa.Column("idempotency_key", text()),
    sa.Column("status", text(), nullable=False),
    sa.Column("ending", text()),
    sa.Column("error", text()),
    sa.Column("provider", text()),
    sa.Column("total", sa.BigInteger, nullable=False),
    _count("completed"),
    _count("failed"),
    _count("unrun"),
    _count("input_tokens"),
    _count("cache_read_tokens"),
    _count("cache_write_tokens"),
    _count("cache_write_1h_tokens"),
    _count("output_tokens"),
    _count("reasoning_tokens"),
    _count("cost_nano"),
    sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
    sa.Column("finalized_at", Instant),
    sa.Column("deleted_at", Instant),
    sa.Column("purged_at", Instant),
    sa.UniqueConstraint("workspace_id", "idempotency_key"),
    sa.CheckConstraint(f"status IN {_STATUSES}", name="status"),
    sa.CheckConstraint("completed + failed <= total AND unrun <= failed", name="counts"),
    sa.CheckConstraint(
        "(finalized_at IS NOT NULL) = (status IN ('completed', 'failed', 'expired', 'cancelled'))",
        name="finalized",
    ),
)
sa.Index("ix_batches_account_created", batches.c.account_id, batches.c.created_at)
sa.Index("ix_batches_workspace_created", batches.c.workspace_id, batches.c.created_at, batches.c.id)
sa.Index(
    "ix_batches_open",
    batches.c.expires_at,
    sqlite_where=batches.c.finalized_at.is_(None),
    postgresql_where=batches.c.finalized_at.is_(None),
)
sa.Index(
    "ix_batches_kept",
    batches.c.created_at,
    sqlite_where=batches.c.purged_at.is_(None),
    postgresql_where=batches.c.purged_at.is_(None),
)

batch_chunks = sa.Table(
    "batch_chunks",
    METADATA,
    sa.Column("batch_id", text(), sa.ForeignKey("batches.id"), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    sa.Column("first_item", sa.BigInteger, nullable=False),
    sa.Column("lines", sa.BigInteger, nullable=False),
    sa.Column("state", text(), nullable=False),
    sa.Column("ready_at", Instant, nullable=False),
    sa.Column("lease_until", Instant),
    sa.Column("token", text()),
    _count("attempts"),
    sa.Column("suspect", sa.BigInteger),
    sa.Column("failures", sa.JSON(none_as_null=True)),
    sa.CheckConstraint("state IN ('waiting', 'running', 'done')", name="state"),
    sa.CheckConstraint(
        "(state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)", name="lease"
    ),
)
sa.Index(
    "ix_batch_chunks_open",
    batch_chunks.c.ready_at,
    sqlite_where=batch_chunks.c.state != "done",
    postgresql_where=batch_chunks.c.state != "done",
)

batch_parts = sa.Table(
    "batch_parts",
    METADATA,
    sa.Column("batch_id", text(), sa.ForeignKey("batches.id"), primary_key=True),
    sa.Column("blob", text(), primary_key=True),
    sa.Column("chunk", sa.BigInteger, nullable=False),
    sa.Column("numbers", sa.JSON, nullable=False),
)

batch_uploads = sa.Table(
    "batch_uploads",
    METADATA,
    sa.Column("batch_id", text(), primary_key=True),
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("given_up", sa.Boolean, nullable=False, server_default=sa.false()),
)
