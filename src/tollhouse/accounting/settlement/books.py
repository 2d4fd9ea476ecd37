"""Booking from the server's side.

The books process is started, asked to book groups of charges, and started anew. What a batch has
used is booked in the transaction that changes the batch.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.accounting.settlement.booking import Step, advance, booking
from tollhouse.accounting.settlement.child import (
    FROM_BOOKS,
    TO_BOOKS,
    BookCharges,
    Booked,
    BookFile,
    NotBooked,
    Open,
    Release,
    SetAside,
    Unreadable,
)
from tollhouse.accounting.settlement.records import payload_of, storable
from tollhouse.kernel.channel import ChannelError
from tollhouse.kernel.errors import Bug
from tollhouse.kernel.subprocesses import own_module, start
from tollhouse.storage.connections import dsn

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from asyncio.subprocess import Process
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import sqlalchemy as sa

    from tollhouse.accounting.settlement.child import FromBooks, ToBooks
    from tollhouse.accounting.settlement.records import JournalPart
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.storage.database import Write

COMMANDS: Final = {
    "sqlite": own_module("tollhouse.accounting.settlement.sqlite"),
    "postgresql": own_module("tollhouse.accounting.settlement.postgresql"),
}
GROUP_SECONDS: Final = 60.0
"""How long a group may take; a process that takes longer is killed and started anew."""
_END_SECONDS: Final = 5.0
_log = structlog.get_logger(__name__)


class ChargesNotBooked(Exception):
    """The database cannot be written, or the books process is gone."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """The name of an error."""


class BooksProcess:
    """The process that books groups of charges; one at a time, and started when it is needed."""

    def __init__(
        self, url: sa.URL, journal: Path, turn: AbstractAsyncContextManager[object], holder: str
    ) -> None:
        """Start nothing yet; `holder` is whose numbers the charges have.

        It writes while `turn` is entered: an SQLite file has one writer at a time, and who waits in
        this process waits for as long as it takes, and not for the file's own busy timeout.
        """
        database = str(url.database) if url.get_backend_name() == "sqlite" else dsn(url)
        self._open = Open(database, str(journal), holder)
        self._command = COMMANDS[url.get_backend_name()]
        self._turn = turn
        self._process: Process | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> Process:
        """Start the process, if it does not run; `OSError` where it cannot be."""
        if self._process is None or self._process.returncode is not None:
            self._process = await start(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # a trace could hold a part of a charge
            )
            watch = _tell_end(self._process)
            self._watch = asyncio.create_task(watch, name="books process")
            await TO_BOOKS.send(_pipes(self._process)[0], self._open)
        return self._process

    async def write(
        self,
        records: Sequence[GenerationRecord],
        part: JournalPart | None = None,
        first: int = 0,
    ) -> Sequence[SetAside]:
        """Book a group of charges; those already booked change nothing.

        It may be read from that part of the journal. Its numbers begin with `first`; with 0 it has
        none, since an earlier process left it. What cannot be stored as it is, whatever the state
        of the database, is returned.

        Raises:
            ChargesNotBooked: The database cannot be reached or written; nothing of the group is
                known to be booked.
        """
        async with self._turn:
            answer: FromBooks = Unreadable()
            if part is not None:
                answer = await self._ask(BookFile(part, first))
                if isinstance(answer, Unreadable):
                    _log.error("journal_changed_from_outside", file=part.name)
            if isinstance(answer, Unreadable):
                answer = await self._ask(BookCharges(list(map(payload_of, records)), first))
        return _set_aside(answer)

    async def release(self, holder: str) -> None:
        """End a holder all of whose charges are booked; again changes nothing that counts.

        Raises:
            ChargesNotBooked: The database cannot be reached or written.
        """
        async with self._turn:
            _set_aside(await self._ask(Release(holder)))

    async def close(self) -> None:
        """End the process, which has nothing more to do then."""
        if self._process is not None:
            await self._end(self._process, _END_SECONDS)

    async def _ask(self, message: ToBooks) -> FromBooks:
        """Return the answer to a message; one whose process is gone may have been done."""
        process = await self.start()
        into, out_of = _pipes(process)
        try:
            async with asyncio.timeout(GROUP_SECONDS):
                await TO_BOOKS.send(into, message)
                return await FROM_BOOKS.reader(out_of).receive()
        except ChannelError as error:  # it has ended by itself, which is told
            await self._end(process, _END_SECONDS, is_told=True)
            raise ChargesNotBooked(type(error).__name__) from None
        except TimeoutError as error:
            await self._end(process, 0.0)
            raise ChargesNotBooked(type(error).__name__) from None
        except BaseException:
            await self._end(process, 0.0)  # its answer must not be taken for the next one's
            raise

    async def _end(self, process: Process, seconds: float, *, is_told: bool = False) -> None:
        watch, self._process, self._watch = self._watch, None, None
        if watch is not None and not is_told:
            watch.cancel()
        into, out_of = _pipes(process)
        into.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(OSError):  # the pipe may have broken before
            await out_of.read()
        await process.wait()
        if watch is not None:
            await asyncio.wait([watch])


def _set_aside(answer: FromBooks) -> Sequence[SetAside]:
    match answer:
        case Booked(set_aside):
            return set_aside
        case NotBooked(reason):
            raise ChargesNotBooked(reason)
        case Unreadable():
            raise Bug("the books process read no file")


def _pipes(process: Process) -> tuple[StreamWriter, StreamReader]:
    if process.stdin is None or process.stdout is None:
        raise Bug("the books process has no pipes")
    return process.stdin, process.stdout


async def _tell_end(process: Process) -> None:
    """Log that a process has ended by itself: killed, or out of memory."""
    _log.error("books_process_gone", code=await process.wait())


async def book_with(write: Write, records: Iterable[GenerationRecord]) -> frozenset[str]:
    """Book generations in somebody else's transaction; return the ids of those that were new.

    After an exception the transaction is lost: one cannot be stored, or the database is not there.
    """
    is_sqlite = write.dialect == "sqlite"
    steps = booking("sqlite" if is_sqlite else "postgresql", [*map(storable, records)])
    # In a thread: the rows of hundreds of generations would hold everything else up.
    step = await asyncio.to_thread(advance, steps)
    while isinstance(step, Step):
        values = [*step.values] if step.is_many else tuple(step.values)
        found = await write.execute_raw(step.sql if is_sqlite else step.numbered, values)
        rows = found.all() if found.returns_rows else ()
        step = advance(steps, rows)
    return step
