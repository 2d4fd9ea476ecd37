"""Accounting: admission of requests, settlement of charges, and the check of the ledger."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.ledger.service import LedgerSampler
from tollhouse.accounting.service import DatabaseAccountLoader
from tollhouse.accounting.settlement.books import BooksProcess
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.recovery import Recovery
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.kernel.errors import StartError
from tollhouse.observability.invariants import Invariants

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import AccountingSettings
    from tollhouse.storage.data_folder import DataFolder


@dataclass(frozen=True, slots=True)
class AccountingComponents:
    """What admits requests and books what they cost."""

    admission: AdmissionController
    journal: Journal
    settler: Settler
    books: BooksProcess
    recovery: Recovery
    invariants: Invariants
    has_siblings: bool
    """Whether other processes charge in the same data folder."""
    _watching: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])

    async def start(self) -> None:
        """Book what ended servers left in their journals, then verify the ledger at intervals.

        Balances are too high before they are booked, so no request may be admitted earlier.
        """
        try:
            await self.books.start()
        except OSError as error:
            raise StartError(f"the books process cannot be started: {error.strerror}") from error
        try:
            self.journal.open()
        except OSError as error:
            raise StartError(f"the journal cannot be written: {error.strerror}") from error
        await self.recovery.recover()
        if self.has_siblings:
            watch = asyncio.create_task(self.recovery.watch(), name="recovery")
            self._watching.append(watch)
        self.invariants.start()

    async def stop(self, seconds: float) -> None:
        """Book what is pending; a check of the ledger that runs may finish, but not for long."""
        del seconds
        await self.invariants.stop()
        for each in self._watching:
            each.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self.settler.close()


def build_accounting(
    settings: AccountingSettings,
    core: Core,
    folder: DataFolder,
    metrics: Metrics,
    *,
    has_siblings: bool = False,
) -> AccountingComponents:
    """Return accounting on a database whose schema is there; must run inside the event loop."""
    turn = core.database.write_lock if core.database.dialect == "sqlite" else asyncio.Lock()
    holder = core.ids.uuid()  # one that is never used again: its charges are numbered
    journal = Journal(folder.journal, holder)
    books = BooksProcess(core.database.url, journal.folder, turn, holder)
    settler = Settler(journal, books, sync=settings.journal_sync == "always")
    loader = DatabaseAccountLoader(core.database, core.clock, holder)
    admission = AdmissionController(
        core.rules,
        loader,
        core.clock,
        reserve_capacity=settler.reserve_capacity,
        max_age_seconds=core.max_age_seconds,
    )
    settler.observer = admission
    core.changes.heard_by = admission.invalidate
    core.changes.hinted_to = admission.refresh
    sampler = LedgerSampler(core.ledger, core.database)

    async def ledger_differences() -> list[dict[str, object]]:
        return [asdict(difference) for difference in await sampler.differences()]

    checks = {"ledger": ledger_differences}
    return AccountingComponents(
        admission=admission,
        journal=journal,
        settler=settler,
        books=books,
        recovery=Recovery(folder.journal, books, changed=admission.invalidate),
        invariants=Invariants(checks, metrics, settings.verify_seconds),
        has_siblings=has_siblings,
    )
