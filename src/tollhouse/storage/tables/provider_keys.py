"""Customers' own keys of providers."""

from __future__ import annotations

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, integers, optional_texts, text, texts

_SWITCHES = ("disabled", "is_fallback", "is_required", "is_byok_only")
_LISTS = ("allowed_models", "allowed_user_ids", "allowed_api_key_hashes")

provider_keys = sa.Table(
    "provider_keys",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False, index=True),
    sa.Column("workspace_id", text(), sa.ForeignKey("workspaces.id"), nullable=False),
    sa.Column("vault_id", text(), sa.ForeignKey("vaults.id"), nullable=False),
    *texts("provider label"),
    sa.Column("name", text()),
    *(sa.Column(name, sa.Boolean, nullable=False) for name in _SWITCHES),
    *integers("sort_order version"),
    *(sa.Column(name, sa.JSON(none_as_null=True)) for name in _LISTS),
    sa.Column("declared_region", text()),
    sa.Column("declared_zdr", sa.Boolean),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    *optional_texts("last_error"),
    sa.Column("last_error_at", Instant),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant),
    sa.CheckConstraint("NOT (is_fallback AND is_byok_only)", name="rules"),
)
"""`sealed` is the key under the data key of the vault, for this row alone. `version` is raised when
another key takes its place."""
sa.Index("ix_provider_keys_place", provider_keys.c.workspace_id, provider_keys.c.provider)
