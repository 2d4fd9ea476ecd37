"""Accounting: admission of requests, settlement of charges, and the check of the ledger."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.admission.controller import AdmissionController
from tollhouse.accounting.admission.leasing import SharedBudgets
from tollhouse.accounting.ledger.service import LedgerSampler
from tollhouse.accounting.service import DatabaseAccountLoader
from tollhouse.accounting.settlement.books import BooksProcess
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.kernel.errors import StartError
from tollhouse.observability.invariants import Invariants
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from tollhouse.apps.core import Core
    from tollhouse.observability.metrics import Metrics
    from tollhouse.settings.sections import AccountingSettings
    from tollhouse.storage.data_folder import DataFolder

_USE_SECONDS = 1.0
"""How old what other servers of a database have charged may be: nobody is told of charges."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AccountingComponents:
    """What admits requests and books what they cost."""

    admission: AdmissionController
    shared: SharedBudgets | None
    """None where this process spends alone."""
    settler: Settler
    books: BooksProcess
    invariants: Invariants

    async def start(self) -> None:
        """Book what a killed server left in its journal, then verify the ledger at intervals.

        Balances are too high before the journal is booked, so no request may be admitted earlier.
        """
        try:
            await self.books.start()
        except OSError as error:
            raise StartError(f"the books process cannot be started: {error.strerror}") from error
        recovered = await self.settler.recover()
        if self.shared is not None:
            self.shared.start()
        if recovered.charges or recovered.interrupted or recovered.damaged:
            _log.warning("charges_recovered", **asdict(recovered))
        self.invariants.start()

    async def stop(self, seconds: float) -> None:
        """Book what is pending; a check of the ledger that runs may finish, but not for long."""
        del seconds
        await self.invariants.stop()
        if self.shared is not None:
            await self.shared.stop()
        await self.settler.close()
        if self.shared is not None:
            await self.shared.leave()


def build_accounting(
    settings: AccountingSettings, core: Core, folder: DataFolder, metrics: Metrics
) -> AccountingComponents:
    """Return accounting on a database whose schema is there; must run inside the event loop."""
    turn = core.database.write_lock if core.database.dialect == "sqlite" else nullcontext()
    holder = core.ids.uuid()  # one that is never used again: its charges are numbered
    books = BooksProcess(core.database.url, folder.journal, turn, holder)
    settler = Settler(Journal(folder.journal), books, sync=settings.journal_sync == "always")
    loader = DatabaseAccountLoader(core.database, core.clock, holder)
    shared = None
    if core.is_shared:
        shared = SharedBudgets(
            core.database,
            core.clock,
            holder,
            socket.gethostname(),
            wait_seconds=core.rules.wait_seconds,
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
        admission, shared, settler, books, Invariants(checks, metrics, settings.verify_seconds)
    )
