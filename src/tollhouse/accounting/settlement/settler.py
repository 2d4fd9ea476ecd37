"""The settler: from a finished reply to the books, without keeping the reply waiting.

    accept(record) ──> journal                                 the reply may leave
                       └── pending ──> books.write(group)      the books process reads the journal
                                       └── the journal forgets it

A charge that is in the journal survives `kill -9`: `recovery` books it. Booking twice changes
nothing, so a kill between the commit and the forgetting is harmless. Groups gather for
`GATHER_SECONDS`, unless somebody waits for them or they are many: a transaction costs many times
what one more row in it does.

Where charges come faster than the database books them, a reply waits until no more than
`BACKPRESSURE_PENDING` are pending. A database that cannot be written is tried again until it can. A
charge that no database would take is quarantined.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import structlog

from tollhouse.accounting.settlement.records import id_of, payload_of
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from tollhouse.accounting.settlement.books import BooksProcess
    from tollhouse.accounting.settlement.journal import Journal
    from tollhouse.accounting.settlement.records import JournalNotes, JournalPart
    from tollhouse.accounting.types import GenerationRecord, Right

GATHER_SECONDS: Final = 0.25
LARGEST_GROUP: Final = 1_000
"""From how many on charges are booked at once."""
BACKPRESSURE_PENDING: Final = 5_000
"""Pending charges from which a reply waits for the books to catch up."""
MOST_PENDING: Final = 100_000
"""Of 1 KB each in memory, while the database cannot be written."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_CANNOT_KEEP: Final = "The gateway cannot keep charges now; try again in a moment."
_log = structlog.get_logger(__name__)


class ChargeObserver(Protocol):
    """Learns of charges on their way to the books."""

    def rights_of(self, record: GenerationRecord) -> tuple[Right, ...]:
        """Return what a charge uses up of this process's rights; the record is kept with them."""
        ...

    def charged(self, record: GenerationRecord, number: int) -> None:
        """A charge is in the journal; it cannot be lost any more. The first has the number 1."""

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        """Charges are in the database, the last one with that number: readers find them now."""

    def invalidate(self, account_id: str) -> None:
        """A charge of an account that was told as pending never will be booked."""


class Flusher:
    """Runs a blocking flush in a thread, one at a time; who comes meanwhile shares the next one."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """Return when a flush that began after this call has ended, or raise what made it fail."""
        if self._next is None:
            self._next = asyncio.create_task(self._flush_after(self._running), name="flusher")
            # Whoever waits learns of an error, and there may be nobody any more.
            self._next.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.shield(self._next)

    async def close(self) -> None:
        """Wait for the flush that is under way."""
        if (last := self._next or self._running) is not None:
            await asyncio.wait([last])

    async def _flush_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        self._running, self._next = self._next, None
        await asyncio.to_thread(self._flush)


async def book(
    books: BooksProcess,
    notes: JournalNotes,
    group: Sequence[GenerationRecord],
    part: JournalPart | None = None,
    first: int = 0,
) -> Collection[str | None]:
    """Book a group; return the ids of those that never will be, which are quarantined."""
    set_aside = await books.write(group, part, first)
    for each in set_aside:
        notes.quarantine(each.payload)
        _log.error("charge_set_aside", generation=id_of(each.payload), error=each.reason)
    return {id_of(each.payload) for each in set_aside}


def error_name(error: Exception) -> str:
    """Return what may be logged of an error: its text may quote a row."""
    return getattr(error, "reason", type(error).__name__)


class Settler:
    """Puts charges in the journal at once and in the books in groups, one group at a time."""

    def __init__(
        self,
        journal: Journal,
        books: BooksProcess,
        *,
        sync: bool = False,
        timeout_seconds: float = 5.0,
    ) -> None:
        """Open nothing and run nothing before the first charge.

        With `sync` a charge has to survive a power failure before its reply leaves, too; a group
        that is in the database does in any case. Nobody waits longer than `timeout_seconds` for a
        database that does not keep up.
        """
        self._journal = journal
        self._books = books
        self._flusher = Flusher(journal.sync) if sync else None
        self._timeout_seconds = timeout_seconds
        self._pending: list[GenerationRecord] = []
        self._accepted = 0
        self._booked = 0
        self._booked_more = asyncio.Event()
        """Set when a group is booked; another takes its place then."""
        self._booking: asyncio.Task[None] | None = None
        self._book_now = asyncio.Event()
        self._takes_charges = True
        self._closing = asyncio.Event()
        self.observer: ChargeObserver | None = None
        """Is told of each charge, and of each group that is booked."""

    def reserve_capacity(self, charges: int) -> None:
        """Return if so many more charges can be taken, or raise `Unavailable`.

        They could not be kept where the journal's disk is full, say, or too many wait for a
        database that cannot be written.
        """
        self._check(charges)
        try:
            self._journal.reserve(charges)
        except OSError as error:
            raise _cannot_keep(error) from error

    def begin(self, record: GenerationRecord) -> None:
        """Keep that a request goes to a provider, until its charge is accepted or it is forgotten.

        Raises:
            Unavailable: It cannot be kept, so nobody may be asked.
        """
        try:
            self._journal.under_way.begin(record)
        except OSError as error:
            raise _cannot_keep(error) from error

    def forget(self, generation_id: str) -> None:
        """Forget a request that no provider bills."""
        self._journal.under_way.end(generation_id)

    def accept(self, record: GenerationRecord) -> Awaitable[None] | None:
        """Accept a charge; return None where it is safe, or what to await until it is.

        That also makes who comes faster than the database books wait. Being cancelled ends only
        the waiting: the charge is booked all the same.

        Raises:
            OSError: The journal cannot be written; the reply must not leave.
            Unavailable: The gateway has ended, or too many charges wait for a database that cannot
                be written.
        """
        self._check(1)
        observer = self.observer
        if observer is not None and (rights := observer.rights_of(record)):
            record = msgspec.structs.replace(record, rights=rights)
        self._journal.append(payload_of(record))
        self._journal.under_way.end(record.id)
        self._pending.append(record)
        self._accepted += 1
        if observer is not None:
            observer.charged(record, self._accepted)
        pending = len(self._pending)
        if self._booking is None:
            self._booking = asyncio.create_task(self._book_pending(), name="settler")
        elif pending == LARGEST_GROUP:
            self._book_now.set()
        if self._flusher is None and pending <= BACKPRESSURE_PENDING:
            return None
        return self._safe(self._accepted)

    async def settle(self, record: GenerationRecord) -> None:
        """Accept a charge; return when it is safe, or raise as `accept` does."""
        unsafe = self.accept(record)
        if unsafe is not None:
            await unsafe

    async def settled(self) -> None:
        """Return when every charge so far is booked; `Unavailable` where that takes too long."""
        if self._booked == self._accepted:
            return
        self._book_now.set()
        try:
            await self._until_booked(self._accepted)
        except TimeoutError:
            message = "Charges are waiting to be stored; try again in a moment."
            raise Unavailable(message, retry_after=1) from None

    async def close(self) -> None:
        """Book what is pending and leave; what cannot be booked is left to who comes after."""
        self._takes_charges = False
        self._closing.set()
        self._book_now.set()
        if self._booking is not None:
            await asyncio.wait([self._booking])
        if self._flusher is not None:
            await self._flusher.close()
        is_done = self._booked == self._accepted and not self._journal.under_way
        try:
            if self._journal.is_open and is_done:
                async with asyncio.timeout(self._timeout_seconds):
                    await self._books.release(self._journal.holder)
                self._journal.remove()
        except Exception as error:  # noqa: BLE001 - the edge: who comes after does it again
            _log.warning("holder_not_released", error=error_name(error))
        finally:
            self._journal.close()
            await self._books.close()

    def _check(self, charges: int) -> None:
        if not self._takes_charges or self._accepted - self._booked + charges > MOST_PENDING:
            raise Unavailable(_CANNOT_KEEP)

    # Who waits

    async def _safe(self, number: int) -> None:
        """Return when so many charges are safe, and not too many others wait."""
        if self._flusher is not None:
            try:
                await self._flusher.flushed()
            except Exception as error:  # noqa: BLE001 - raised again unless the books take the charge
                _log.exception("journal_not_flushed")
                self._book_now.set()
                try:
                    await self._until_booked(number)
                except TimeoutError:
                    raise error from None
        if len(self._pending) > BACKPRESSURE_PENDING:
            # Its charge is safe: this is for those who come faster than the database books.
            with suppress(TimeoutError):
                await self._until_booked(number - BACKPRESSURE_PENDING)

    async def _until_booked(self, number: int) -> None:
        """Wait until so many charges are in the books; `TimeoutError` where that takes too long."""
        async with asyncio.timeout(self._timeout_seconds):
            while self._booked < number:
                await self._booked_more.wait()

    # Booking

    async def _book_pending(self) -> None:
        try:
            while self._pending:
                # Let charges come, unless somebody waits for those that are there or they are many.
                if len(self._pending) < LARGEST_GROUP:
                    await wait_for_event(self._book_now, GATHER_SECONDS)
                    if not self._closing.is_set():
                        self._book_now.clear()
                group, self._pending = self._pending, []
                part = self._journal.switch_files()
                if not await self._book_with_retries(group, part):
                    return
                self._empty_booked()
        finally:
            self._booking = None

    async def _book_with_retries(
        self, group: Sequence[GenerationRecord], part: JournalPart
    ) -> bool:
        """Book a group, again and again until that succeeds; false where closing cuts it short."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                never = await book(self._books, self._journal.notes, group, part, self._booked + 1)
            except Exception as error:  # noqa: BLE001 - the edge: whatever it was, nothing is lost
                _log.error(
                    "charges_not_booked_yet",
                    count=len(group) + len(self._pending),
                    first_generation=group[0].id,
                    error=error_name(error),
                )
            else:
                break
            if self._closing.is_set():
                return False
            await wait_for_event(self._closing, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        self._booked += len(group)
        if self.observer is not None:
            self.observer.booked(group, self._booked)
            for account_id in {record.account_id for record in group if record.id in never}:
                self.observer.invalidate(account_id)
        self._booked_more.set()
        self._booked_more = asyncio.Event()
        return True

    def _empty_booked(self) -> None:
        try:
            blocking_failpoint("books.forget.before")
            self._journal.empty_booked()
            blocking_failpoint("books.forget.after")
        except Exception:  # noqa: BLE001 - the edge: what it still holds is booked, a start sees that
            _log.exception("journal_not_emptied")


def _cannot_keep(error: OSError) -> Unavailable:
    _log.error("journal_without_room", error=error.strerror)
    return Unavailable(_CANNOT_KEEP)
