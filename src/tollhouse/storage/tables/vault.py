"""Vaults with their secrets, and whose requests receive which of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from tollhouse.storage.tables.base import METADATA, Instant, counters, partial_index, text

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


class Hosts(sa.types.TypeDecorator[tuple[str, ...]]):
    """Host names, which have no spaces, as one text with spaces between them.

    Against JSON, whose decoder costs 9 us a row, 1: hundreds are read for one request.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        """Turn names into a text."""
        del dialect
        return None if value is None else " ".join(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        """Turn a text into names."""
        del dialect
        return None if value is None else tuple(value.split(" "))


vaults = sa.Table(
    "vaults",
    METADATA,
    sa.Column("id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("workspace_id", text(), sa.ForeignKey("workspaces.id"), nullable=False, index=True),
    sa.Column("kind", text(), nullable=False),
    sa.Column("kek_id", text(), nullable=False, index=True),
    sa.Column("wrapped_key", sa.LargeBinary, nullable=False),
    *counters("changes"),
    sa.Column("created_at", Instant, nullable=False),
    sa.CheckConstraint("kind IN ('workspace', 'intern')", name="kind"),
)
"""`kek_id` names the key-encryption key that `wrapped_key`, the data key, is wrapped with.
`changes` counts what was done to its secrets; to count holds the row for who changes them."""
partial_index(
    "uq_vaults_of_workspace", vaults.c.workspace_id, unique=True, where=vaults.c.kind == "workspace"
)

vault_secrets = sa.Table(
    "vault_secrets",
    METADATA,
    sa.Column("vault_id", text(), sa.ForeignKey("vaults.id"), primary_key=True),
    sa.Column("name", text(), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("hosts", Hosts),
    sa.Column("fingerprint", text()),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("updated_at", Instant, nullable=False),
    sa.CheckConstraint("(hosts IS NULL) = (fingerprint IS NULL)", name="legacy"),
    sa.CheckConstraint("version >= 1", name="version"),
)
"""Without hosts and fingerprint: imported from a store that bound nothing to hosts."""

vault_subjects = sa.Table(
    "vault_subjects",
    METADATA,
    sa.Column("intern_id", text(), primary_key=True),
    sa.Column("account_id", text(), sa.ForeignKey("accounts.id"), nullable=False),
    sa.Column("workspace_id", text(), sa.ForeignKey("workspaces.id"), nullable=False, index=True),
    sa.Column("own_vault_id", text(), sa.ForeignKey("vaults.id"), nullable=False, unique=True),
    sa.Column("attached_vault_id", text(), index=True),
    sa.Column("created_at", Instant, nullable=False),
    sa.CheckConstraint(
        "attached_vault_id IS NULL OR attached_vault_id != own_vault_id", name="two"
    ),
)
"""The attached vault may be gone; that has a meaning of its own, so it is no foreign key."""
