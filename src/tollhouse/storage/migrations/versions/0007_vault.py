"""The vault, the record of what is done with it, and who may use it.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

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
    op.add_column("accounts", _switch("intern_programme", sa.false()))
    op.add_column("accounts", _switch("vault_writes", sa.true()))
    op.add_column("workspaces", _switch("intern_programme", sa.true()))
    op.add_column("workspaces", _switch("vault_writes", sa.true()))


def _audit() -> None:
    op.create_table(
        "audit_rows",
        _name("chain"),
        _number("seq"),
        _number("at"),
        *map(_name, ("action", "actor")),
        *(sa.Column(name, _text()) for name in ("workspace_id", "intern_id", "vault_id", "name")),
        sa.Column("version", sa.BigInteger),
        sa.Column("hosts", sa.JSON),
        *map(_name, ("verdict", "hash")),
        sa.PrimaryKeyConstraint("chain", "seq", name=op.f("pk_audit_rows")),
    )
    op.create_table(
        "audit_heads",
        _name("chain"),
        _number("seq"),
        _name("hash"),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_audit_heads")),
    )


def _vaults() -> None:
    op.create_table(
        "vaults",
        *map(_name, ("id", "account_id", "workspace_id", "kind", "kek_id")),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
        sa.Column("changes", sa.BigInteger, nullable=False, server_default=sa.text("0")),
        _number("created_at"),
        _refers("vaults", "account_id", "accounts.id"),
        _refers("vaults", "workspace_id", "workspaces.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_vaults")),
        sa.CheckConstraint("kind IN ('workspace', 'intern')", name=op.f("ck_vaults_kind")),
    )
    op.create_index(op.f("ix_vaults_kek_id"), "vaults", ["kek_id"])
    op.create_index(op.f("ix_vaults_workspace_id"), "vaults", ["workspace_id"])
    condition = sa.text("kind = 'workspace'")
    op.create_index(
        "uq_vaults_of_workspace",
        "vaults",
        ["workspace_id"],
        unique=True,
        sqlite_where=condition,
        postgresql_where=condition,
    )


def _secrets() -> None:
    op.create_table(
        "vault_secrets",
        *map(_name, ("vault_id", "name")),
        _number("version"),
        sa.Column("hosts", sa.Text),
        sa.Column("fingerprint", _text()),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        *map(_number, ("created_at", "updated_at")),
        _refers("vault_secrets", "vault_id", "vaults.id"),
        sa.PrimaryKeyConstraint("vault_id", "name", name=op.f("pk_vault_secrets")),
        sa.CheckConstraint(
            "(hosts IS NULL) = (fingerprint IS NULL)", name=op.f("ck_vault_secrets_legacy")
        ),
        sa.CheckConstraint("version >= 1", name=op.f("ck_vault_secrets_version")),
    )


def _subjects() -> None:
    op.create_table(
        "vault_subjects",
        *map(_name, ("intern_id", "account_id", "workspace_id", "own_vault_id")),
        sa.Column("attached_vault_id", _text()),
        _number("created_at"),
        _refers("vault_subjects", "account_id", "accounts.id"),
        _refers("vault_subjects", "workspace_id", "workspaces.id"),
        _refers("vault_subjects", "own_vault_id", "vaults.id"),
        sa.PrimaryKeyConstraint("intern_id", name=op.f("pk_vault_subjects")),
        sa.UniqueConstraint("own_vault_id", name=op.f("uq_vault_subjects_own_vault_id")),
        sa.CheckConstraint(
            "attached_vault_id IS NULL OR attached_vault_id != own_vault_id",
            name=op.f("ck_vault_subjects_two"),
        ),
    )
    for column in ("workspace_id", "attached_vault_id"):
        op.create_index(op.f(f"ix_vault_subjects_{column}"), "vault_subjects", [column])


def _text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _name(name: str) -> sa.Column[str]:
    return sa.Column(name, _text(), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _switch(name: str, default: sa.ColumnElement[bool]) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean, nullable=False, server_default=default)


def _refers(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [to], name=op.f(f"fk_{table}_{column}"))
