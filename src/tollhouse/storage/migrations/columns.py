"""What the migrations write their tables with; like them, it stays as it is.

Several names are one text with spaces between them. Constraints have the names that the naming
convention of `storage.tables` gives them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op


def text() -> sa.types.TypeEngine[str]:
    """Return a text type that sorts by bytes on both databases."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def texts(names: str) -> list[sa.Column[str]]:
    """Return columns of texts, none of which is null."""
    return [sa.Column(name, text(), nullable=False) for name in names.split()]


def optional_texts(names: str) -> list[sa.Column[str]]:
    """Return columns of texts, or null."""
    return [sa.Column(name, text()) for name in names.split()]


def integers(names: str) -> list[sa.Column[int]]:
    """Return columns of 64-bit integers, none of which is null."""
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names.split()]


def optional_integers(names: str) -> list[sa.Column[int]]:
    """Return columns of 64-bit integers, or null."""
    return [sa.Column(name, sa.BigInteger) for name in names.split()]


def counters(names: str) -> list[sa.Column[int]]:
    """Return columns of 64-bit integers that begin with 0."""
    zero = sa.text("0")
    return [
        sa.Column(name, sa.BigInteger, nullable=False, server_default=zero)
        for name in names.split()
    ]


def switch(name: str, *, on: bool = False) -> sa.Column[bool]:
    """Return a column of a truth value, with what it is for rows that are there already."""
    default = sa.true() if on else sa.false()
    return sa.Column(name, sa.Boolean, nullable=False, server_default=default)


def primary(table: str, columns: str) -> sa.PrimaryKeyConstraint:
    """Return a primary key."""
    return sa.PrimaryKeyConstraint(*columns.split(), name=op.f(f"pk_{table}"))


def refers(table: str, column: str, to: str) -> sa.ForeignKeyConstraint:
    """Return a foreign key, to `table.column`."""
    return sa.ForeignKeyConstraint([column], [to], name=op.f(f"fk_{table}_{column}"))


def unique(table: str, columns: str) -> sa.UniqueConstraint:
    """Return a constraint that no two rows are equal in some columns."""
    names = columns.split()
    return sa.UniqueConstraint(*names, name=op.f(f"uq_{table}_{'_'.join(names)}"))


def check(table: str, name: str, condition: str) -> sa.CheckConstraint:
    """Return a condition that every row fulfils."""
    return sa.CheckConstraint(condition, name=op.f(f"ck_{table}_{name}"))


def index_where(
    name: str, table: str, column: str, condition: str, *, unique: bool = False
) -> None:
    """Make an index of the rows that fulfil a condition."""
    where = sa.text(condition)
    op.create_index(
        name, table, [column], unique=unique, sqlite_where=where, postgresql_where=where
    )
