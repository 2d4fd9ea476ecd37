"""Accounting: admission of requests, settlement of charges, and the check of the ledger."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.admission.leasing import SharedBudgets
from tollhouse.accounting.budgets import spend_alone
from tollhouse.accounting.ledger import LedgerSampler
from tollhouse.accounting.loader import DatabaseAccountLoader
from tollhouse.accounting.settlement.books import BooksProcess
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.recovery import Recovery
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.kernel.errors import StartError
from tollhouse.observability.invariants import Invariants
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.apps.core import Core
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import AccountingSettings
    from tollhouse.storage.data_folder import DataFolder

_USE_SECONDS = 10.0
"""How old what other servers of a database have charged may be: nobody is told of charges.

Only texts and the cut of open-ended answers go by it: what may be spent the database says, and who
is short of it reads anew. Each key in use costs a reading in that time.
"""


@dataclass(frozen=True, slots=True)
class AccountingComponents:
    """What admits requests and books what they cost."""

    admission: AdmissionController
    shared: SharedBudgets | None
    """None where this process spends alone."""
    journal: Journal
    settler: Settler
    books: BooksProcess
    recovery: Recovery
    invariants: Invariants
    spend_alone: Callable[[], Awaitable[None]]
    """Forgets what processes were granted that spent together on this database."""
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
        if self.shared is not None:
            self.shared.start()
        else:
            await self.spend_alone()
        if self.has_siblings:
            watch = asyncio.create_task(self.recovery.watch(), name="recovery")
            self._watching.append(watch)
        self.invariants.start()

    async def stop(self, seconds: float) -> None:
        """Book what is pending; a check of the ledger that runs may finish, but not for long."""
        del seconds
        await self.invariants.stop()
        if self.shared is not None:
            await self.shared.stop()
        for each in self._watching:
            each.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        await self.settler.close()


def build_accounting(
    settings: AccountingSettings, core: Core, folder: DataFolder, metrics: Metrics
) -> AccountingComponents:
    """Return accounting on a database whose schema is there; must run inside the event loop."""
    turn = core.database.write_lock if core.database.dialect == "sqlite" else asyncio.Lock()
    holder = core.ids.uuid()  # one that is never used again: its charges are numbered
    journal = Journal(folder.journal, holder)
    books = BooksProcess(core.database.url, journal.folder, turn, holder)
    settler = Settler(journal, books, sync=settings.journal_sync == "always")
    loader = DatabaseAccountLoader(core.database, core.clock, holder)
    shared = None
    if core.is_shared:
        shared = SharedBudgets(
            core.database,
            core.clock,
            holder,
            socket.gethostname(),
            wait_seconds=core.rules.wait_seconds,
            settlement_seconds=core.rules.settlement_seconds,
            on_cut_off=partial(os.kill, os.getpid(), signal.SIGTERM),
        )
    admission = AdmissionController(
        core.rules,
        loader,
        core.clock,
        reserve_capacity=settler.reserve_capacity,
        max_age_seconds=None if shared is None else _USE_SECONDS,
        shared=shared,
    )
    settler.observer = admission
    core.database.notifications.subscribe(Topic.ACCOUNT, admission.invalidate)
    core.database.notifications.subscribe(Topic.ACCOUNT_HINT, admission.refresh)
    if shared is not None:
        core.database.notifications.subscribe(Topic.ACCOUNT, lambda _: shared.notice(None))
        core.database.notifications.subscribe(Topic.LEASE, shared.notice)
    sampler = LedgerSampler(core.ledger, core.database)

    async def ledger_differences() -> list[dict[str, object]]:
        return [asdict(difference) for difference in await sampler.differences()]

    checks = {"ledger": ledger_differences}
    return AccountingComponents(
        admission=admission,
        shared=shared,
        journal=journal,
        settler=settler,
        books=books,
        recovery=Recovery(folder.journal, books, changed=admission.invalidate),
        invariants=Invariants(checks, metrics, settings.verify_seconds),
        spend_alone=partial(spend_alone, core.database),
        has_siblings=core.has_siblings,
    )
