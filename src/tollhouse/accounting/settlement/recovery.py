"""What processes that ended have left in their journals: booked by who is there.

A start does it before the first request, since balances are too high until then. Where several
processes share a data folder, each of them looks for siblings that have died, once a second. The
lock of a journal says who takes it; if that one dies too, the next one begins anew.
"""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import structlog

from tollhouse.accounting.settlement.journal import Journal, journals_in
from tollhouse.accounting.settlement.records import record_of
from tollhouse.accounting.settlement.settler import LARGEST_GROUP, book, error_name
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tollhouse.accounting.settlement.books import BooksProcess
    from tollhouse.accounting.settlement.journal import JournalContents
    from tollhouse.accounting.types import GenerationRecord

LOOK_SECONDS: Final = 1.0
"""How long a sibling that died may go unnoticed."""
_log = structlog.get_logger(__name__)


class RecoveredCharges(NamedTuple):
    """What was found in journals that were left behind."""

    charges: int = 0
    """Charges that are in the books now."""
    damaged: int = 0
    """Places that were no charge; each was logged with its offset."""
    interrupted: int = 0
    """Requests that were at a provider, and have no charge in the journal."""


class Recovery:
    """Takes the journals over whose locks are free, one after the other."""

    def __init__(
        self,
        root: Path,
        books: BooksProcess,
        changed: Callable[[str], None] = lambda _account_id: None,
    ) -> None:
        """Look for nothing yet; `changed` is told of each account of which something was booked."""
        self._root = root
        self._books = books
        self._changed = changed
        self._told: set[str] = set()
        """Whose journals could not be taken over, and were logged."""

    async def recover(self) -> RecoveredCharges:
        """Take over what there is, at a start.

        Raises:
            StartError: It cannot be read or booked; nothing of it is lost.
        """
        try:
            found = [await self._take_over(holder) for holder in journals_in(self._root)]
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
        return RecoveredCharges(*map(sum, zip(RecoveredCharges(), *found, strict=True)))

    async def watch(self) -> None:
        """Take over what siblings leave behind, until this is cancelled."""
        holders: Sequence[str] = ()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with suppress(OSError):  # the disk is away, say: this has to go on when it is back
                holders = journals_in(self._root)
            for holder in holders:
                try:
                    await self._take_over(holder)
                except Exception as error:  # noqa: BLE001 - the edge: it stays there
                    if holder not in self._told:
                        _log.error("journal_not_taken_over", holder=holder, error=error_name(error))
                    self._told.add(holder)

    async def _take_over(self, holder: str) -> RecoveredCharges:
        """Book what is in a journal and remove it; does nothing while its holder is there."""
        with closing(Journal(self._root, holder)) as journal:
            if not journal.take():
                return RecoveredCharges()
            found, charges, begun = await asyncio.to_thread(_read, journal)
            # Those that have a charge change nothing: it comes first, or is in the books already.
            records = [*charges, *begun]
            for start in range(0, len(records), LARGEST_GROUP):
                await book(self._books, journal.notes, records[start : start + LARGEST_GROUP])
            for account_id in {record.account_id for record in records}:
                self._changed(account_id)
            if holder:
                await self._books.release(holder)
            # Last, so that it is told once, and not each time that the database is away.
            _log_unreadable(found)
            journal.notes.keep_damaged(found.damaged)
            journal.notes.keep_missing(found.missing)
            journal.remove()
        interrupted = {record.id for record in begun}.difference(record.id for record in charges)
        recovered = RecoveredCharges(len(charges), len(found.damaged), len(interrupted))
        if recovered != RecoveredCharges():
            _log.warning("charges_recovered", holder=holder, **recovered._asdict())
        return recovered


def _read(
    journal: Journal,
) -> tuple[JournalContents, list[GenerationRecord], list[GenerationRecord]]:
    found = journal.read_unbooked()
    blocking_failpoint("journal.taken")
    return found, [*map(record_of, found.payloads)], [*map(record_of, found.under_way)]


def _log_unreadable(found: JournalContents) -> None:
    for damage in found.damaged:
        _log.error(
            "journal_damaged",
            file=damage.file,
            offset=damage.offset,
            bytes=len(damage.data),
            is_tail=damage.is_tail,
        )
    for gone in found.missing:
        _log.error(
            "journal_charges_missing",
            file=gone.file,
            expected_bytes=gone.expected,
            found_bytes=gone.found,
        )
