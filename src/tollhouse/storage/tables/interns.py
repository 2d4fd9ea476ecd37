"""Interns. Who acts on one holds its lease; what is written under an older token is refused.

What a state is, and which follows which, is in `interns.lifecycle`.
"""

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, counters, optional_texts, text, texts

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
_IS_STATE = " OR ".join(f"(status = '{status}' AND desired = '{want}')" for status, want in _STATES)

interns = sa.Table(
    "interns",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("workspace_id", text(), sa.ForeignKey("workspaces.id"), nullable=False),
    *texts("creator name"),
    *optional_texts("description instructions model"),
    *texts("status desired"),
    sa.Column("step", sa.BigInteger),
    *optional_texts("last_failure_message vault_id attached_vault_id hostname"),
    sa.Column("number", sa.BigInteger, nullable=False, unique=True),
    *texts("idempotency_key request_digest"),
    sa.Column("loss_acknowledged", sa.Boolean, nullable=False, server_default=sa.false()),
    *optional_texts("workspace_digest payer_hash"),
    *counters("restarts"),
    *optional_texts("run_model run_key_hash"),
    sa.Column("run_port", sa.BigInteger),  # of earlier releases, which gave each a port
    sa.Column("run_token_hash", text()),
    sa.Column("run_sealed_token", sa.LargeBinary),
    sa.Column("machine", text()),
    *counters("lease_token"),
    sa.Column("lease_until", Instant),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.UniqueConstraint("workspace_id", "creator", "name"),
    sa.UniqueConstraint("workspace_id", "creator", "idempotency_key"),
    sa.CheckConstraint(_IS_STATE, name="state"),
    sa.CheckConstraint("step IS NULL OR status = 'provisioning'", name="step"),
    sa.CheckConstraint(
        "(run_key_hash IS NULL) = (run_model IS NULL) "
        "AND (run_key_hash IS NULL) = (run_token_hash IS NULL) "
        "AND (run_key_hash IS NULL) = (run_sealed_token IS NULL) "
        "AND (run_port IS NULL OR run_key_hash IS NOT NULL)",
        name="run",
    ),
)
"""`machine` is where its workspace lies. Neither vault is a foreign key: an own one is made after
the row, an attached one may be gone."""

intern_machines = sa.Table(
    "intern_machines",
    METADATA,
    sa.Column("machine", text(), primary_key=True),
    sa.Column("present_until", Instant, nullable=False),
)
"""Each machine that runs interns, or did: it says again and again until when it is sure to be."""
intern_channels = sa.Table(
    "intern_channels",
    METADATA,
    sa.Column("intern_id", text(), sa.ForeignKey("interns.id"), primary_key=True),
    *texts("service"),
    sa.Column("settings", sa.JSON, nullable=False),
    sa.Column("sealed_tokens", sa.LargeBinary),
    sa.Column("updated_at", Instant, nullable=False),
)
"""The chat service in which an intern is talked to; its tokens are missing until it is installed
there, and are sealed under the key of the intern's own vault."""
intern_channel_events = sa.Table(
    "intern_channel_events",
    METADATA,
    sa.Column("intern_id", text(), sa.ForeignKey("interns.id"), primary_key=True),
    sa.Column("event_id", text(), primary_key=True),
    sa.Column("seen_at", Instant, nullable=False),
    sa.Index("ix_intern_channel_events_seen", "intern_id", "seen_at"),
)
"""What an intern's chat service has sent lately, so that nothing is done twice."""
sa.Index("ix_interns_workspace_created", interns.c.workspace_id, interns.c.created_at, interns.c.id)
