"""Interns.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

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
        *c.texts("id account_id workspace_id creator name"),
        *c.optional_texts("description instructions model"),
        *c.texts("status desired"),
        *c.optional_integers("step"),
        *c.optional_texts("last_failure_message vault_id attached_vault_id hostname"),
        *c.integers("number"),
        *c.texts("idempotency_key request_digest"),
        c.switch("loss_acknowledged"),
        *c.optional_texts("workspace_digest"),
        *c.counters("restarts"),
        *c.optional_texts("run_model run_key_hash"),
        *c.optional_integers("run_port"),
        *c.optional_texts("run_token_hash"),
        sa.Column("run_sealed_token", sa.LargeBinary),
        *c.optional_texts("machine"),
        *c.counters("lease_token"),
        *c.optional_integers("lease_until"),
        *c.integers("created_at updated_at"),
        c.refers("interns", "account_id", "accounts.id"),
        c.refers("interns", "workspace_id", "workspaces.id"),
        c.primary("interns", "id"),
        c.unique("interns", "number"),
        c.unique("interns", "workspace_id creator name"),
        c.unique("interns", "workspace_id creator idempotency_key"),
        c.check("interns", "state", is_state),
        c.check("interns", "step", "step IS NULL OR status = 'provisioning'"),
        c.check(
            "interns",
            "run",
            "(run_key_hash IS NULL) = (run_model IS NULL) "
            "AND (run_key_hash IS NULL) = (run_token_hash IS NULL) "
            "AND (run_key_hash IS NULL) = (run_sealed_token IS NULL) "
            "AND (run_port IS NULL OR run_key_hash IS NOT NULL)",
        ),
    )
    op.create_index("ix_interns_workspace_created", "interns", ["workspace_id", "created_at", "id"])
