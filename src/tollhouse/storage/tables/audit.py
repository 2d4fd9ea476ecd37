"""The record of what was done, and by whom: rows in chains, and where each chain ends."""

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, optional_texts, text, texts

audit_rows = sa.Table(
    "audit_rows",
    METADATA,
    sa.Column("chain", text(), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", Instant, nullable=False),
    *texts("action actor"),
    *optional_texts("workspace_id intern_id vault_id name"),
    sa.Column("version", sa.BigInteger),
    sa.Column("hosts", sa.JSON(none_as_null=True)),
    sa.Column("verdict", text(), nullable=False),
    sa.Column("object_id", text()),
    sa.Column("changes", sa.JSON(none_as_null=True)),
    sa.Column("hash", text(), nullable=False),
)

audit_heads = sa.Table(
    "audit_heads",
    METADATA,
    sa.Column("chain", text(), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False),
    sa.Column("hash", text(), nullable=False),
)
"""Written with each row; whoever appends locks it, so that a chain has no gap and no fork."""
