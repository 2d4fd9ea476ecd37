"""Batches, the chunks that their items are stored in, and the parts of their results.

The items themselves and their results are blobs. Who works on a chunk holds its token until
`lease_until`; a part counts only if it was written under the token that the chunk has then.
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
    texts,
)

_STATUSES = (
    "('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', "
    "'cancelling', 'cancelled')"
)

batches = sa.Table(
    "batches",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    *texts("workspace_id key_hash"),
    sa.Column("payer_hash", text()),
    *texts("endpoint model"),
    sa.Column("wish", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("attribution", sa.JSON, nullable=False),
    sa.Column("digest", text(), nullable=False),
    sa.Column("idempotency_key", text()),
    sa.Column("status", text(), nullable=False),
    *optional_texts("ending error provider"),
    sa.Column("total", sa.BigInteger, nullable=False),
    *counters(
        "completed failed unrun input_tokens cache_read_tokens cache_write_tokens "
        "cache_write_1h_tokens output_tokens reasoning_tokens cost_nano"
    ),
    sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False),
    sa.Column("finalized_at", Instant),
    sa.Column("deleted_at", Instant),
    sa.Column("purged_at", Instant),
    # Of one that has ended: when its chunks may be compressed; nothing is left to compress if NULL.
    sa.Column("compress_at", Instant),
    sa.Column("is_byok", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("only_own_keys", sa.Boolean, nullable=False, server_default=sa.false()),
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
partial_index("ix_batches_open", batches.c.expires_at, where=batches.c.finalized_at.is_(None))
partial_index("ix_batches_kept", batches.c.created_at, where=batches.c.purged_at.is_(None))

batch_chunks = sa.Table(
    "batch_chunks",
    METADATA,
    sa.Column("batch_id", text(), sa.ForeignKey("batches.id"), primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True),
    *integers("first_item lines"),
    sa.Column("state", text(), nullable=False),
    sa.Column("ready_at", Instant, nullable=False),
    sa.Column("lease_until", Instant),
    sa.Column("token", text()),
    *counters("attempts"),
    sa.Column("suspect", sa.BigInteger),
    sa.Column("failures", sa.JSON(none_as_null=True)),
    sa.CheckConstraint("state IN ('waiting', 'running', 'done')", name="state"),
    sa.CheckConstraint(
        "(state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)", name="lease"
    ),
)
partial_index("ix_batch_chunks_open", batch_chunks.c.ready_at, where=batch_chunks.c.state != "done")

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
