"""Columns and indexes that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.kernel.clock import from_millis, to_millis

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def text() -> sa.types.TypeEngine[str]:
    """Return a text type that sorts by bytes on both databases."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def texts(names: str) -> list[sa.Column[str]]:
    """Return columns of texts, none of which is null; their names are separated by spaces."""
    return [sa.Column(name, text(), nullable=False) for name in names.split()]


def optional_texts(names: str) -> list[sa.Column[str]]:
    """Return columns of texts, or null."""
    return [sa.Column(name, text()) for name in names.split()]


def text_keys(names: str) -> list[sa.Column[str]]:
    """Return columns of texts that make up the primary key."""
    return [sa.Column(name, text(), primary_key=True) for name in names.split()]


def integers(names: str) -> list[sa.Column[int]]:
    """Return columns of 64-bit integers, none of which is null."""
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names.split()]


def counters(names: str) -> list[sa.Column[int]]:
    """Return the same that begin with 0."""
    zero = sa.text("0")
    return [
        sa.Column(name, sa.BigInteger, nullable=False, server_default=zero)
        for name in names.split()
    ]


def partial_index(
    name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool], unique: bool = False
) -> sa.Index:
    """Return an index of the rows that fulfil a condition."""
    return sa.Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


class Instant(sa.types.TypeDecorator[datetime]):
    """An aware UTC datetime, stored as whole milliseconds since the epoch.

    SQLite has no datetime type and hands naive values back; an integer is exact, sorts, and reads
    the same from both databases and from statements that bypass SQLAlchemy.
    """

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        """Turn a datetime into milliseconds."""
        del dialect
        return None if value is None else to_millis(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        """Turn milliseconds into an aware datetime."""
        del dialect
        return None if value is None else from_millis(value)
