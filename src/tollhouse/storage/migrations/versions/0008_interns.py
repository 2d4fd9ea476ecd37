"""Interns.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_STATES = (
    ("awaiting_chat_install", "idle"),
    ("queued", "idle"),
    ("queued", "running"),
    ("provisioning", "running"),
    ("running", "running"),
    ("running", "stopped"),
    ("failed", "idle"),
    ("stopped", "idle"),
    ("destroying", "absent"),
    ("destroy_failed", "idle"),
)


def upgrade() -> None:
    """Make the table."""
    is_state = " OR ".join(
        f"(status = '{status}' AND desired = '{want}')" for status, want in _STATES
    )
    op.create_table(
        "interns",
        *map(_name, ("id", "account_id", "workspace_id", "creator", "name")),
        *map(_maybe, ("description", "instructions", "model")),
        *map(_name, ("status", "desired")),
        sa.Column("step", sa.BigInteger),
        *map(_maybe, ("last_failure_message", "vault_id", "attached_vault_id", "hostname")),
        _number("number"),
        *map(_name, ("idempotency_key", "request_digest")),
        sa.Column("loss_acknowledged", sa.Boolean, nullable=False, server_default=sa.false()),
        _maybe("workspace_digest"),
        _count("restarts"),
        *map(_maybe, ("run_model", "run_key_hash")),
        sa.Column("run_port", sa.BigInteger),
        _maybe("run_token_hash"),
        sa.Column("run_sealed_token", sa.LargeBinary),
        _maybe("machine"),
        _count("lease_token"),
        sa.Column("lease_until", sa.BigInteger),
        *map(_number, ("created_at", "updated_at")),
        _refers("account_id", "accounts.id"),
        _refers("workspace_id", "workspaces.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_interns")),
        sa.UniqueConstraint("number", name=op.f("uq_interns_number")),
        sa.UniqueConstraint(
            "workspace_id", "creator", "name", name=op.f("uq_interns_workspace_id_creator_name")
        ),
        sa.UniqueConstraint(
            "workspace_id",
            "creator",
            "idempotency_key",
            name=op.f("uq_interns_workspace_id_creator_idempotency_key"),
        ),
        sa.CheckConstraint(is_state, name=op.f("ck_interns_state")),
        sa.CheckConstraint("step IS NULL OR status = 'provisioning'", name=op.f("ck_interns_step")),
        sa.CheckConstraint(
            "(run_key_hash IS NULL) = (run_model IS NULL) "
            "AND (run_key_hash IS NULL) = (run_token_hash IS NULL) "
            "AND (run_key_hash IS NULL) = (run_sealed_token IS NULL) "
            "AND (run_port IS NULL OR run_key_hash IS NOT NULL)",
            name=op.f("ck_interns_run"),
        ),
    )
    op.create_index("ix_interns_workspace_created", "interns", ["workspace_id", "created_at", "id"])


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, _text(), nullable=False)


def _maybe(name: str) -> sa.Column[str]:
    return sa.Column(name, _text())


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text("0"))


def _refers(column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [target], name=op.f(f"fk_interns_{column}"))
