"""Customers' own keys of providers, and whether they served a batch.

Revision ID: r0002
Revises: r0001
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "r0002"
down_revision = "r0001"

_TABLE = "provider_keys"


def upgrade() -> None:
    """Make the table, and the column: no batch of before used any."""
    switches = ("disabled", "is_fallback", "is_required", "is_byok_only")
    lists = ("allowed_models", "allowed_user_ids", "allowed_api_key_hashes")
    op.create_table(
        _TABLE,
        *c.texts("id account_id workspace_id vault_id provider label"),
        *c.optional_texts("name"),
        *(sa.Column(name, sa.Boolean, nullable=False) for name in switches),
        *c.integers("sort_order version"),
        *(sa.Column(name, sa.JSON) for name in lists),
        *c.optional_texts("declared_region"),
        sa.Column("declared_zdr", sa.Boolean),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        *c.optional_texts("last_error"),
        *c.optional_integers("last_error_at"),
        *c.integers("created_at"),
        *c.optional_integers("updated_at"),
        c.primary(_TABLE, "id"),
        c.refers(_TABLE, "account_id", "accounts.id"),
        c.refers(_TABLE, "workspace_id", "workspaces.id"),
        c.refers(_TABLE, "vault_id", "vaults.id"),
        c.check(_TABLE, "rules", "NOT (is_fallback AND is_byok_only)"),
    )
    op.create_index("ix_provider_keys_account_id", _TABLE, ["account_id"])
    op.create_index("ix_provider_keys_place", _TABLE, ["workspace_id", "provider"])
    op.add_column("batches", c.switch("is_byok"))
