"""Batches: what was submitted, its chunks and who works on them, the parts of its results.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_STATUSES = (
    "('validating', 'in_progress', 'finalizing', 'completed', 'failed', 'expired', "
    "'cancelling', 'cancelled')"
)
_COUNTERS = (
    "completed",
    "failed",
    "unrun",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost_nano",
)


def upgrade() -> None:
    """Make the tables."""
    _batches()
    _batch_chunks()
    op.create_table(
        "batch_parts",
        _name("batch_id"),
        _name("blob"),
        _number("chunk"),
        sa.Column("numbers", sa.JSON, nullable=False),
        _of_batch("batch_parts"),
        sa.PrimaryKeyConstraint("batch_id", "blob", name=op.f("pk_batch_parts")),
    )
    op.create_table(
        "batch_uploads",
        _name("batch_id"),
        _number("started_at"),
        sa.Column("given_up", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batch_uploads")),
    )


def _batches() -> None:
    op.create_table(
        "batches",
        *map(_name, ("id", "account_id", "workspace_id", "key_hash", "endpoint", "model")),
        sa.Column("only_providers", sa.JSON),
        sa.Column("allow_fallbacks", sa.Boolean),
        sa.Column("attribution", sa.JSON, nullable=False),
        _name("digest"),
        sa.Column("idempotency_key", _text()),
        _name("status"),
        *(sa.Column(name, _text()) for name in ("ending", "error", "provider")),
        _number("total"),
        *map(_counter, _COUNTERS),
        sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()),
        _number("created_at"),
        _number("expires_at"),
        *(sa.Column(name, sa.BigInteger) for name in ("finalized_at", "deleted_at", "purged_at")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_batches_account_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_batches")),
        sa.UniqueConstraint(
            "workspace_id", "idempotency_key", name=op.f("uq_batches_workspace_id_idempotency_key")
        ),
        sa.CheckConstraint(f"status IN {_STATUSES}", name=op.f("ck_batches_status")),
        sa.CheckConstraint(
            "completed + failed <= total AND unrun <= failed", name=op.f("ck_batches_counts")
        ),
        sa.CheckConstraint(
            "(finalized_at IS NOT NULL) = "
            "(status IN ('completed', 'failed', 'expired', 'cancelled'))",
            name=op.f("ck_batches_finalized"),
        ),
    )
    op.create_index("ix_batches_account_created", "batches", ["account_id", "created_at"])
    op.create_index("ix_batches_workspace_created", "batches", ["workspace_id", "created_at", "id"])
    _index_where("ix_batches_open", "batches", "expires_at", "finalized_at IS NULL")
    _index_where("ix_batches_kept", "batches", "created_at", "purged_at IS NULL")


def _batch_chunks() -> None:
    op.create_table(
        "batch_chunks",
        _name("batch_id"),
        *map(_number, ("number", "first_item", "lines")),
        _name("state"),
        _number("ready_at"),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("token", _text()),
        _counter("attempts"),
        sa.Column("suspect", sa.BigInteger),
        _of_batch("batch_chunks"),
        sa.PrimaryKeyConstraint("batch_id", "number", name=op.f("pk_batch_chunks")),
        sa.CheckConstraint(
            "state IN ('waiting', 'running', 'done')", name=op.f("ck_batch_chunks_state")
        ),
        sa.CheckConstraint(
            "(state = 'running') = (token IS NOT NULL AND lease_until IS NOT NULL)",
            name=op.f("ck_batch_chunks_lease"),
        ),
    )
    _index_where("ix_batch_chunks_open", "batch_chunks", "ready_at", "state != 'done'")


def _index_where(name: str, table: str, column: str, condition: str) -> None:
    op.create_index(
        name,
        table,
        [column],
        sqlite_where=sa.text(condition),
        postgresql_where=sa.text(condition),
    )


def _of_batch(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["batch_id"], ["batches.id"], name=op.f(f"fk_{table}_batch_id"))


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, _text(), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _counter(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))
