"""The books process of an SQLite file: `python -m tollhouse.accounting.settlement.sqlite_child`."""

from __future__ import annotations

from tollhouse.accounting.settlement.child import serve
from tollhouse.accounting.settlement.sqlite_writer import SqliteChargeWriter


def main() -> None:
    """Book what the server says."""
    serve(lambda books: SqliteChargeWriter(books.database, books.holder))


if __name__ == "__main__":
    main()
