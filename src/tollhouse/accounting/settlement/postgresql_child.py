"""The books process of PostgreSQL: `python -m tollhouse.accounting.settlement.postgresql_child`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.accounting.settlement.child import serve
from tollhouse.accounting.settlement.postgresql_writer import PostgresqlChargeWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.settlement.child import Write
    from tollhouse.accounting.settlement.messages import Open
    from tollhouse.accounting.types import GenerationRecord


def main() -> None:
    """Book what the server says."""
    with asyncio.Runner() as runner:

        def open_database(books: Open) -> Write:
            writer = PostgresqlChargeWriter(books.database, books.holder)

            def write(records: Sequence[GenerationRecord], last: int) -> None:
                runner.run(writer.write(records, last))

            return write

        serve(open_database)


if __name__ == "__main__":
    main()
