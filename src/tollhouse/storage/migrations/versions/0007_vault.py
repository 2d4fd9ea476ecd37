"""The vault, the record of what is done with it, and who may use it.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

from tollhouse.storage.migrations import columns as c

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the tables."""
    _switches()
    _audit()
    _vaults()
    _secrets()
    _subjects()


def _switches() -> None:
    # Accounts that are there already may not do what they could not do before.
    op.add_column("accounts", c.switch("intern_programme"))
    op.add_column("accounts", c.switch("vault_writes", on=True))
    op.add_column("workspaces", c.switch("intern_programme", on=True))
    op.add_column("workspaces", c.switch("vault_writes", on=True))


def _audit() -> None:
    op.create_table(
        "audit_rows",
        *c.texts("chain"),
        *c.integers("seq at"),
        *c.texts("action actor"),
        *c.optional_texts("workspace_id intern_id vault_id name"),
        *c.optional_integers("version"),
        sa.Column("hosts", sa.JSON),
        *c.texts("verdict hash"),
        c.primary("audit_rows", "chain seq"),
    )
    op.create_table(
        "audit_heads",
        *c.texts("chain"),
        *c.integers("seq"),
        *c.texts("hash"),
        c.primary("audit_heads", "chain"),
    )


def _vaults() -> None:
    op.create_table(
        "vaults",
        *c.texts("id account_id workspace_id kind kek_id"),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        *c.counters("changes"),
        *c.integers("created_at"),
        c.refers("vaults", "account_id", "accounts.id"),
        c.refers("vaults", "workspace_id", "workspaces.id"),
        c.primary("vaults", "id"),
        c.check("vaults", "kind", "kind IN ('workspace', 'intern')"),
    )
    op.create_index(op.f("ix_vaults_kek_id"), "vaults", ["kek_id"])
    op.create_index(op.f("ix_vaults_workspace_id"), "vaults", ["workspace_id"])
    c.index_where(
        "uq_vaults_of_workspace", "vaults", "workspace_id", "kind = 'workspace'", unique=True
    )


def _secrets() -> None:
    op.create_table(
        "vault_secrets",
        *c.texts("vault_id name"),
        *c.integers("version"),
        sa.Column("hosts", sa.Text),
        *c.optional_texts("fingerprint"),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        *c.integers("created_at updated_at"),
        c.refers("vault_secrets", "vault_id", "vaults.id"),
        c.primary("vault_secrets", "vault_id name"),
        c.check("vault_secrets", "legacy", "(hosts IS NULL) = (fingerprint IS NULL)"),
        c.check("vault_secrets", "version", "version >= 1"),
    )


def _subjects() -> None:
    op.create_table(
        "vault_subjects",
        *c.texts("intern_id account_id workspace_id own_vault_id"),
        *c.optional_texts("attached_vault_id"),
        *c.integers("created_at"),
        c.refers("vault_subjects", "account_id", "accounts.id"),
        c.refers("vault_subjects", "workspace_id", "workspaces.id"),
        c.refers("vault_subjects", "own_vault_id", "vaults.id"),
        c.primary("vault_subjects", "intern_id"),
        c.unique("vault_subjects", "own_vault_id"),
        c.check(
            "vault_subjects",
            "two",
            "attached_vault_id IS NULL OR attached_vault_id != own_vault_id",
        ),
    )
    for column in ("workspace_id", "attached_vault_id"):
        op.create_index(op.f(f"ix_vault_subjects_{column}"), "vault_subjects", [column])
