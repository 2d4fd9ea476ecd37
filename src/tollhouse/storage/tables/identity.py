"""Accounts, workspaces, users and API keys."""

import sqlalchemy as sa

from tollhouse.storage.tables.base import (
    METADATA,
    Instant,
    optional_texts,
    partial_index,
    text,
    text_keys,
    texts,
)

accounts = sa.Table(
    "accounts",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("name", text(), nullable=False),
    sa.Column("type", text(), nullable=False, server_default="prepaid"),
    sa.Column("free_limits_exempt", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("intern_programme", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("vault_writes", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant),
    sa.CheckConstraint("type IN ('prepaid', 'enterprise', 'subscription', 'invoice')", name="type"),
)

workspaces = sa.Table(
    "workspaces",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("is_default", sa.Boolean, nullable=False),
    *texts("name slug"),
    sa.Column("description", text()),
    sa.Column("preferences", sa.JSON, nullable=False),
    sa.Column("created_by", text()),
    sa.Column("intern_programme", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("vault_writes", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant),
    sa.UniqueConstraint("account_id", "slug"),
)
partial_index(
    "uq_workspaces_default_of_account",
    workspaces.c.account_id,
    unique=True,
    where=workspaces.c.is_default,
)

users = sa.Table(
    "users",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("name", text(), nullable=False),
    sa.Column("email", text()),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant),
)

access_policies = sa.Table(
    "access_policies",
    METADATA,
    *text_keys("scope owner_id"),
    sa.Column("policy", sa.JSON, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.CheckConstraint("scope IN ('account', 'workspace', 'key')", name="scope"),
)

api_keys = sa.Table(
    "api_keys",
    METADATA,
    sa.Column("hash", text(), primary_key=True),
    sa.Column("secret_hash", text()),
    sa.Column("kind", text(), nullable=False),
    sa.Column("operator", sa.Boolean, nullable=False),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("workspace_id", text(), sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("creator_user_id", text(), sa.ForeignKey("users.id")),
    *optional_texts("intern_id payer_hash"),
    *texts("name label"),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("expires_at", Instant),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant),
    sa.Column("deleted_at", Instant),
    sa.CheckConstraint("kind IN ('api', 'management', 'intern')", name="kind"),
    sa.CheckConstraint("(kind = 'intern') = (intern_id IS NOT NULL)", name="intern"),
    sa.CheckConstraint("kind = 'management' OR NOT operator", name="operator"),
)
"""`hash` names a key for ever. `secret_hash` is that of its present text: the same for all but
interns' keys, whose text changes, and which have none while nothing runs with them. `payer_hash` is
the key that answers for an intern's; no foreign key, since it may be gone."""
sa.Index("uq_api_keys_secret_hash", api_keys.c.secret_hash, unique=True)
partial_index(
    "ix_api_keys_creator",
    api_keys.c.creator_user_id,
    where=api_keys.c.creator_user_id.is_not(None),
)
sa.Index("ix_api_keys_intern", api_keys.c.intern_id)
sa.Index("ix_api_keys_workspace_created", api_keys.c.workspace_id, api_keys.c.created_at)
