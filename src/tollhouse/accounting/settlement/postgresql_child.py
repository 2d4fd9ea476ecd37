"""The books process of PostgreSQL: `python -m tollhouse.accounting.settlement.postgresql_child`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.accounting.settlement.child import serve
from tollhouse.accounting.settlement.postgresql_writer import PostgresqlChargeWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tollhouse.accounting.settlement.messages import Open
    from tollhouse.accounting.types import GenerationRecord


class BlockingWriter:
    """Waits until a writer is done, by running it."""

    def __init__(
        self, run: Callable[[Coroutine[None, None, None]], None], writer: PostgresqlChargeWriter
    ) -> None:
        self._run = run
        self._writer = writer

    def write(self, records: Sequence[GenerationRecord], last: int) -> None:
        """Book charges."""
        self._run(self._writer.write(records, last))

    def release(self, holder: str) -> None:
        """End a holder."""
        self._run(self._writer.release(holder))


def main() -> None:
    """Book what the server says."""
    with asyncio.Runner() as runner:

        def open_database(books: Open) -> BlockingWriter:
            return BlockingWriter(runner.run, PostgresqlChargeWriter(books.database, books.holder))

        serve(open_database)


if __name__ == "__main__":
    main()
