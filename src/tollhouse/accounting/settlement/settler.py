"""The settler: from a finished reply to the books, without keeping the reply waiting.

    settle(record) ──> journal                                  the reply may leave
                       └── pending ──> writer.write([...])      a group, one transaction
                                       └── the journal forgets it

A charge that is in the journal survives `kill -9`; `recover` books it at the next start. Booking
twice changes nothing, so a kill between the commit and the forgetting is harmless.

Groups gather for `GATHER_SECONDS`: a transaction costs many times what one more row in it does.
Who reads money waits with `settled` for the charges so far, and that cuts the gathering short.

Where charges come faster than the database books them, a reply waits until no more than `CROWDED`
are pending. A database that cannot be written is tried again until it can; the charges wait in the
journal. A charge that no database would take spoils its group: the group is then booked one by one,
and that one is set aside.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.accounting.ports import Unbookable
from tollhouse.accounting.settlement.flusher import Flusher
from tollhouse.accounting.settlement.rows import storable
from tollhouse.accounting.types import GenerationRecord
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.start import StartError
from tollhouse.kernel.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from tollhouse.accounting.ports import ChargeObserver, ChargeWriter
    from tollhouse.accounting.settlement.journal import Journal

GATHER_SECONDS: Final = 0.03
LARGEST_GROUP: Final = 500
CROWDED: Final = 250
"""Pending charges from which a reply waits for the books to catch up."""
MOST_PENDING: Final = 100_000
"""Of 1 KB each in memory, while the database cannot be written."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_CANNOT_KEEP: Final = "The gateway cannot keep charges now; try again in a moment."
_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(GenerationRecord).decode


@dataclass(frozen=True, slots=True)
class RecoveredCharges:
    """What a start found in the journal."""

    charges: int
    """Charges that are in the books now."""
    damaged: int
    """Places that were no charge; each was logged with its offset."""


class Settler:
    """Puts charges in the journal at once and in the books in groups, one group at a time."""

    def __init__(
        self,
        journal: Journal,
        writer: ChargeWriter,
        *,
        sync: bool = False,
        patience_seconds: float = 5.0,
    ) -> None:
        """Take the two places; nothing is opened and nothing runs before the first charge.

        Args:
            journal: Where a charge is first.
            writer: What makes it part of the books.
            sync: Whether a charge has to survive a power failure before its reply leaves, too; a
                group that is in the database does in any case.
            patience_seconds: How long anybody waits for a database that does not keep up.
        """
        self._journal = journal
        self._writer = writer
        self._flusher = Flusher(journal.sync) if sync else None
        self._patience_seconds = patience_seconds
        self._pending: list[GenerationRecord] = []
        self._taken = 0
        self._booked = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        """Who waits until so many charges are booked."""
        self._booking: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._closing = asyncio.Event()
        self._writing = asyncio.Lock()
        self._readers = 0
        self._no_readers = asyncio.Event()
        self._no_readers.set()
        self._doubtful = False
        """Whether a group may be in the database in part, or a charge of it never will be."""
        self.observer: ChargeObserver | None = None
        """Is told of each charge, and of each group that is booked."""

    @property
    def waiting(self) -> int:
        """How many wait for the books."""
        return len(self._waiting)

    def reserve_capacity(self, charges: int) -> None:
        """Return if so many more charges can be taken.

        Raises:
            Unavailable: They could not be kept: the journal's disk is full, say, or too many wait
                for a database that cannot be written.
        """
        if self._closing.is_set() or self._taken - self._booked + charges > MOST_PENDING:
            raise Unavailable(_CANNOT_KEEP)
        try:
            self._journal.reserve(charges)
        except OSError as error:
            _log.error("journal_without_room", error=error.strerror)
            raise Unavailable(_CANNOT_KEEP) from error

    @asynccontextmanager
    async def between_groups(self) -> AsyncGenerator[None]:
        """Keep groups of charges from being booked: none is half way into the database.

        Several may read at once; a group that waits for them goes before those who come later.
        """
        async with self._writing:
            self._readers += 1
            self._no_readers.clear()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._no_readers.set()

    async def settle(self, record: GenerationRecord) -> None:
        """Take a charge; return when it is safe.

        Being cancelled ends only the waiting: the charge is booked all the same.

        Raises:
            OSError: The journal cannot be written; the reply must not leave.
            Unavailable: The gateway has ended, or too many charges wait for a database that cannot
                be written.
        """
        if self._closing.is_set() or self._taken - self._booked >= MOST_PENDING:
            raise Unavailable(_CANNOT_KEEP)
        self._journal.append(_payload(record))
        self._pending.append(record)
        self._taken += 1
        if self.observer is not None:
            self.observer.charged(record)
        number = self._taken
        if self._booking is None:
            self._booking = asyncio.create_task(self._book_pending(), name="settler")
        if self._flusher is not None:
            await self._flushed(self._flusher, number)
        if len(self._pending) > CROWDED:
            # Its charge is safe: this is for those who come faster than the database books.
            with suppress(TimeoutError):
                await self._until_booked(number - CROWDED)

    async def settled(self) -> None:
        """Return when every charge that was taken so far is in the books.

        Raises:
            Unavailable: The database has not taken them in time.
        """
        if self._booked == self._taken:
            return
        self._hurry.set()
        try:
            await self._until_booked(self._taken)
        except TimeoutError:
            message = "Charges are waiting to be stored; try again in a moment."
            raise Unavailable(message, retry_after=1) from None

    async def _flushed(self, flusher: Flusher, number: int) -> None:
        """Return when a charge survives a power failure: on the disk, or else in the books."""
        try:
            await flusher.flushed()
        except Exception as error:  # noqa: BLE001 - raised again unless the books take the charge
            _log.exception("journal_not_flushed")
            self._hurry.set()
            try:
                await self._until_booked(number)
            except TimeoutError:
                raise error from None

    async def _until_booked(self, number: int) -> None:
        """Wait until so many of the charges that were taken are in the books.

        Raises:
            TimeoutError: They are not in time.
        """
        if number <= self._booked:
            return
        waiting = (number, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._patience_seconds):
                await waiting[1]
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    async def recover(self) -> RecoveredCharges:
        """Book what a process that was killed has left in the journal.

        Call it before the first charge, by the one process that holds the journal's folder.

        Raises:
            StartError: It cannot be read or booked; nothing of it is lost.
        """
        try:
            left = self._journal.leftovers()
            for damage in left.damages:
                _log.error(
                    "journal_damaged",
                    file=damage.file,
                    offset=damage.offset,
                    bytes=len(damage.data),
                    is_tail=damage.is_tail,
                )
            for gone in left.missing:
                _log.error(
                    "journal_charges_missing",
                    file=gone.file,
                    expected_bytes=gone.expected,
                    found_bytes=gone.found,
                )
            self._journal.keep_damaged(left.damages)
            self._journal.keep_missing(left.missing)
            records = [_decode(payload) for payload in left.payloads]
            await self._book(records)
            self._journal.clear()
        except msgspec.MsgspecError as error:
            raise StartError(
                "the journal holds charges that another version of Tollhouse wrote: "
                "start that version once, so that it books them"
            ) from error
        except Exception as error:
            raise StartError(
                f"the charges in the journal cannot be booked ({type(error).__name__}): "
                "mend the database or the disk, and start again; they are not lost"
            ) from error
        return RecoveredCharges(len(records), len(left.damages))

    async def close(self) -> None:
        """Book what is pending, then give up the two places.

        Charges that cannot be booked now stay in the journal for the next start.
        """
        self._closing.set()
        self._hurry.set()
        if self._booking is not None:
            await asyncio.wait([self._booking])
        if self._flusher is not None:
            await self._flusher.close()
        try:
            await self._writer.close()
        finally:
            self._journal.close()

    async def _book_pending(self) -> None:
        try:
            while self._pending:
                await self._gather()
                group, self._pending = self._pending, []
                self._journal.turn()
                if not await self._book_patiently(group):
                    return
                self._booked += len(group)
                self._tell()
                self._forget()
        finally:
            self._booking = None

    def _forget(self) -> None:
        try:
            self._journal.forget()
        except Exception:  # noqa: BLE001 - the edge: what it still holds is booked, a start sees that
            _log.exception("journal_not_emptied")

    async def _gather(self) -> None:
        """Let charges come, unless somebody waits for those that are there or they are many."""
        if len(self._pending) >= LARGEST_GROUP:
            return
        await wait_for_event(self._hurry, GATHER_SECONDS)
        if not self._closing.is_set():
            self._hurry.clear()

    async def _book_patiently(self, group: Sequence[GenerationRecord]) -> bool:
        """Book a group, again and again until that succeeds; false where closing cuts it short."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                async with self._writing:
                    await self._no_readers.wait()
                    await self._book(group)
                    self._observe(group)
            except Exception as error:  # noqa: BLE001 - the edge: whatever it was, nothing is lost
                self._doubtful = True
                # Not its text: a database's error may quote the row.
                _log.error(
                    "charges_not_booked_yet",
                    count=len(group) + len(self._pending),
                    first_generation=group[0].id,
                    error=type(error.__cause__ or error).__name__,
                )
            else:
                return True
            if self._closing.is_set():
                return False
            await wait_for_event(self._closing, pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _observe(self, group: Sequence[GenerationRecord]) -> None:
        """Tell that a group is in the books; where that was in doubt, that memory may be wrong."""
        if self.observer is None:
            return
        self.observer.booked(group)
        if self._doubtful:
            self._doubtful = False
            for account_id in {record.account_id for record in group}:
                self.observer.invalidate(account_id)

    async def _book(self, group: Sequence[GenerationRecord]) -> None:
        for start in range(0, len(group), LARGEST_GROUP):
            part = group[start : start + LARGEST_GROUP]
            try:
                await self._writer.write(part)
            except Unbookable as error:
                await self._book_singly(part, error)

    async def _book_singly(self, group: Sequence[GenerationRecord], error: Unbookable) -> None:
        if len(group) > 1:
            for record in group:
                await self._book([record])
            return
        [record] = group
        self._journal.set_aside(_payload(record))
        self._doubtful = True
        _log.error(
            "charge_set_aside",
            generation=record.id,
            error=type(error.__cause__ or error).__name__,
        )

    def _tell(self) -> None:
        """Let those go on whose charges are all booked."""
        still = [each for each in self._waiting if each[0] > self._booked]
        for number, done in self._waiting:
            if number <= self._booked and not done.done():
                done.set_result(None)
        self._waiting = still


def _payload(record: GenerationRecord) -> bytes:
    try:
        return _encode(record)
    except UnicodeEncodeError:
        # Half of a surrogate pair, from a client or a provider: hardly ever, so looked for last.
        return _encode(storable(record))
