"""Column types that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

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

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


def text() -> sa.types.TypeEngine[str]:
    """Return a text type that sorts by bytes on both databases."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def to_millis(instant: datetime) -> int:
    """Return whole milliseconds since the epoch of an aware datetime.

    Near the ends of the calendar another zone has instants that UTC has not; they become the first
    or the last one, since a row that cannot be read back would be lost.
    """
    return min(max((instant - _EPOCH) // _MILLISECOND, _FIRST), _LAST)


def from_millis(millis: int) -> datetime:
    """Return the aware UTC datetime of milliseconds since the epoch."""
    return _EPOCH + millis * _MILLISECOND


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
