"""Batches: what was submitted, its chunks and who works on them, the parts of its results.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0006"
down_revision = "0005"

_STATUSES = (
    "('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', "
    "'cancelling', 'cancelled')"
)


def upgrade() -> None:
    """Make the tables."""
    _batches()
    _batch_chunks()
    op.create_table(
        "batch_parts",
        *c.texts("batch_id blob"),
        *c.integers("chunk"),
        sa.Column("numbers", sa.JSON, nullable=False),
        c.refers("batch_parts", "batch_id", "batches.id"),
        c.primary("batch_parts", "batch_id blob"),
    )
    op.create_table(
        "batch_uploads",
        *c.texts("batch_id"),
        *c.integers("started_at"),
        c.switch("given_up"),
        c.primary("batch_uploads", "batch_id"),
    )


def _batches() -> None:
    op.create_table(
        "batches",
        *c.texts("id account_id workspace_id key_hash endpoint model"),
        sa.Column("only_providers", sa.JSON),
        sa.Column("allow_fallbacks", sa.Boolean),
        sa.Column("attribution", sa.JSON, nullable=False),
        *c.texts("digest"),
        *c.optional_texts("idempotency_key"),
        *c.texts("status"),
        *c.optional_texts("ending error provider"),
        *c.integers("total"),
        *c.counters(
            "completed failed unrun input_tokens cache_read_tokens cache_write_tokens "
            "cache_write_1h_tokens output_tokens reasoning_tokens cost_nano"
        ),
        c.switch("released"),
        *c.integers("created_at expires_at"),
        *c.optional_integers("finalized_at deleted_at purged_at"),
        c.refers("batches", "account_id", "accounts.id"),
        c.primary("batches", "id"),
        c.unique("batches", "workspace_id idempotency_key"),
        c.check("batches", "status", f"status IN {_STATUSES}"),
        c.check("batches", "counts", "completed + failed <= total AND unrun <= failed"),
        c.check(
            "batches",
            "finalized",
            "(finalized_at IS NOT NULL) = "
            "(status IN ('completed', 'failed', 'expired', 'cancelled'))",
        ),
    )
    op.create_index("ix_batches_account_created", "batches", ["account_id", "created_at"])
    op.create_index("ix_batches_workspace_created", "batches", ["workspace_id", "created_at", "id"])
    c.index_where("ix_batches_open", "batches", "expires_at", "finalized_at IS NULL")
    c.index_where("ix_batches_kept", "batches", "created_at", "purged_at IS NULL")


def _batch_chunks() -> None:
    op.create_table(
        "batch_chunks",
        *c.texts("batch_id"),
        *c.integers("number first_item lines"),
        *c.texts("state"),
        *c.integers("ready_at"),
        *c.optional_integers("lease_until"),
        *c.optional_texts("token"),
        *c.counters("attempts"),
        *c.optional_integers("suspect"),
        c.refers("batch_chunks", "batch_id", "batches.id"),
        c.primary("batch_chunks", "batch_id number"),
        c.check("batch_chunks", "state", "state IN ('waiting', 'running', 'done')"),
        c.check(
            "batch_chunks",
            "lease",
            "(state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)",
        ),
    )
    c.index_where("ix_batch_chunks_open", "batch_chunks", "ready_at", "state != 'done'")
