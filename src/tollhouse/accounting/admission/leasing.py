"""What this process may spend of budgets that others spend, too.

Several processes on one database, servers of PostgreSQL or workers of one machine, spend one
balance and one limit. Each spends what the database granted it; a request for which that does not
suffice waits until more is. `rights` decides; `budgets` has the transactions, one after the other.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.accounting import budgets
from tollhouse.accounting.admission.budgets import SpendClaim
from tollhouse.accounting.budget_rows import make_rows
from tollhouse.accounting.budgets import Asking, MissingRows
from tollhouse.accounting.leases import IN_FLIGHT
from tollhouse.accounting.limits import BudgetId
from tollhouse.accounting.rights import Claim, Decided, Rights, Timing
from tollhouse.accounting.types import Right
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tollhouse.accounting.admission.types import Rate
    from tollhouse.accounting.leases import Answer, Operation
    from tollhouse.accounting.types import GenerationRecord, Reservation
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database

LEAST_WAIT_SECONDS: Final = 1.0
"""What others have and do not need comes back within this time; nobody is refused before that."""
_OPERATION_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ROWS_AT_ONCE: Final = 50
_LASTING: Final = frozenset({"give_back", "grant"})
_NOT_GRANTED: Final = "The account's credits cannot be reserved now; try again in a moment."
_log = structlog.get_logger(__name__)


def _is_true(done: asyncio.Future[bool]) -> bool:
    return done.done() and not done.cancelled() and done.exception() is None and done.result()


class SharedBudgets:
    """This process's rights of budgets, and the transactions that change them."""

    def __init__(  # noqa: PLR0913 - the composition root calls it once
        self,
        database: Database,
        clock: Clock,
        holder: str,
        machine: str,
        *,
        wait_seconds: float,
        settlement_seconds: float,
        on_cut_off: Callable[[], None],
    ) -> None:
        """Ask nothing yet; `on_cut_off` is called once an operator has written this process off.

        What a request has cost stays in the in-flight budget for `settlement_seconds`.
        """
        self._database = database
        self._clock = clock
        self._holder = holder
        self._machine = machine
        self._timing = Timing(wait=max(wait_seconds, LEAST_WAIT_SECONDS))
        self._rights = Rights(self._timing)
        self._settlement_seconds = settlement_seconds
        self._recent: deque[tuple[float, Claim]] = deque()
        """What requests that have ended still hold of the in-flight budget, and until when."""
        self._on_cut_off = on_cut_off
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._reservations: dict[str, Reservation] = {}
        self._given: dict[BudgetId, int] = {}
        self._full_until: dict[tuple[str, str | None], float] = {}
        """Until when nothing is left of limits of a minute, so that nobody asks before that."""
        self._changed = asyncio.Event()
        self._rounds = count(1)
        self._lane: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ask the database for what requests need."""
        self._lane = asyncio.create_task(self._run(), name="shared budgets")
        self._lane.add_done_callback(self._ended)

    def _ended(self, lane: asyncio.Task[None]) -> None:
        if not lane.cancelled() and (error := lane.exception()) is not None:
            _log.error("budgets_not_shared_any_more", error=type(error).__name__)
            self._forget()
            self._on_cut_off()

    async def stop(self) -> None:
        """Ask nothing any more; what is left goes back with the end of the journal."""
        if self._lane is not None:
            self._lane.cancel()
            with suppress(asyncio.CancelledError):
                await self._lane
        self._forget()

    # Requests

    def take(self, claim: SpendClaim) -> bool:
        """Tell whether a request may begin at once; it holds what it claims then."""
        self._end_recent(self._clock.monotonic())
        return self._rights.try_begin(claim)

    async def wait(
        self, claim: SpendClaim, since: float, given: Mapping[BudgetId, int] | None = None
    ) -> bool:
        """Wait until a request may begin, which holds what it claims then; false: it may not.

        It has waited since a time of the monotonic clock. `given` has the limits of those of its
        budgets that are not in the database.

        Raises:
            Unavailable: The database does not answer, or this process was written off.
        """
        if self._rights.cut_off or self._lane is None or self._lane.done():
            raise Unavailable(_NOT_GRANTED)
        if not claim.reserves:
            claim.id = f"{claim.id} {next(self._rounds)}"  # an answer to the last one is not for it
        if self._rights.begin(claim, self._clock.monotonic()):
            return True
        claim.since = since
        self._given.update(given or {})
        done = self._waiting[claim.id] = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            return await done
        except asyncio.CancelledError:
            if claim in self._rights.waiting:
                self._rights.withdraw(claim)
                self._tell(Decided(self._rights.serve()))
            elif not claim.reserves and _is_true(done):
                self.end(claim)
            raise
        finally:
            self._waiting.pop(claim.id, None)

    async def take_token(self, account_id: str, rate: Rate) -> float:
        """Count a request towards a limit of a minute; return 0, or when there is room again.

        That is in seconds.

        Raises:
            Unavailable: The database does not answer.
        """
        place, now = (account_id, rate.model), self._clock.monotonic()
        if (until := self._full_until.get(place, now)) > now:
            return until - now
        try:
            async with asyncio.timeout(_OPERATION_SECONDS), self._database.writing() as write:
                wait = await budgets.take_token(
                    write, account_id, rate.model or "", rate.per_minute, self._clock
                )
        except Exception as error:
            _log.warning("rate_not_counted", error=type(error).__name__)
            raise Unavailable(_NOT_GRANTED, retry_after=1) from error
        if wait > 0:
            self._full_until = {each: at for each, at in self._full_until.items() if at > now}
            self._full_until[place] = now + wait
        else:
            self._full_until.pop(place, None)
        return wait

    async def reserve(self, reservation: Reservation, amounts: Mapping[BudgetId, int]) -> bool:
        """Set credits aside for a batch, in a transaction of its own; false: they do not suffice.

        Raises:
            Unavailable: As above.
        """
        claim = SpendClaim(reservation.id, amounts, reserves=True)
        self._reservations[claim.id] = reservation
        waiting = asyncio.create_task(self.wait(claim, self._clock.monotonic()))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # What its transaction sets aside has to be there before the caller gives it back.
            await asyncio.wait([waiting])
            raise
        finally:
            self._reservations.pop(claim.id, None)

    def rights_of(self, claim: SpendClaim, record: GenerationRecord) -> tuple[Right, ...]:
        """Return what a request's charge uses up of this process's rights."""
        used = self._rights.used_by(claim, claim.costs(record))
        return tuple([Right(*budget, nano) for budget, nano in used if budget.scope != IN_FLIGHT])

    def end(
        self, claim: Claim, used: Sequence[Right] = (), number: int = 0, cost_nano: int = 0
    ) -> None:
        """End a request, with its charge, if it has one: that one's rights, number and cost."""
        if cost_nano and self._settlement_seconds:
            for budget in claim.amounts:
                if budget.scope == IN_FLIGHT:
                    until = self._clock.monotonic() + self._settlement_seconds
                    self._recent.append((until, Claim(claim.id, {budget: cost_nano})))
                    self._rights.lease(budget).held += cost_nano
        rights = [(BudgetId(*right[:3]), right.nano) for right in used]
        self._rights.end(claim, rights, number)
        if self._rights.is_pressed:
            self._tell(Decided(self._rights.serve()))
            self._changed.set()

    def _end_recent(self, now: float) -> None:
        while self._recent and self._recent[0][0] <= now:
            self.end(self._recent.popleft()[1])

    def booked(self, number: int) -> None:
        """Learn that the charges up to a number are in the database."""
        self._rights.acknowledge(number)

    def notice(self, ref: str | None) -> None:
        """Hear which budget a holder wants some of, or (None) that something has changed."""
        holder, *budget = [""] if ref is None else json.loads(ref)
        if holder != self._holder:
            wanted = BudgetId(*budget) if holder else None
            self._rights.notice(wanted, self._clock.monotonic())
            self._changed.set()

    # Transactions

    async def _run(self) -> None:
        failed = 0
        while True:
            now = self._clock.monotonic()
            self._end_recent(now)
            operation = self._rights.next_operation(now, self._clock.now().date().isoformat())
            if operation is None:
                await wait_for_event(self._changed, max(0.0, self._wakes_at() - now))
                self._changed.clear()
                continue
            try:
                async with asyncio.timeout(_OPERATION_SECONDS):
                    answer = await self._operate(operation)
            except Exception as error:  # noqa: BLE001 - the edge: whatever it was, a fence is next
                failed += 1
                self._rights.unanswered(operation, self._clock.monotonic())
                if failed & (failed - 1) == 0:  # 1, 2, 4 and so on
                    _log.warning("budgets_not_asked", error=type(error).__name__, times=failed)
                if failed > 1:
                    self._forget()
                await asyncio.sleep(min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * failed))
            else:
                # A fence succeeds also where every grant fails.
                if operation.name in _LASTING or not self._rights.waiting:
                    failed = 0
                self._tell(self._rights.answered(operation, answer))
                if operation.name == "fence" and self._rights.in_doubt:
                    await asyncio.sleep(_PAUSE_SECONDS)  # it was older than what was told before
                if self._rights.cut_off:
                    _log.error("written_off", holder=self._holder)
                    self._forget()
                    self._on_cut_off()
                    return

    def _wakes_at(self) -> float:
        wakes_at = self._rights.wakes_at()
        ends = self._recent and self._rights.is_pressed
        return min(wakes_at, self._recent[0][0]) if ends else wakes_at

    async def _operate(self, operation: Operation) -> Answer:
        asking = Asking(
            self._holder,
            self._machine,
            2 * self._timing.poll,
            {**self._reservations},
            {**self._given},
        )
        while True:
            try:
                async with self._database.writing() as write:
                    return await budgets.operate(write, operation, asking, self._clock)
            except MissingRows as error:
                missing = sorted(error.missing)
            for at in range(0, len(missing), _ROWS_AT_ONCE):
                async with self._database.writing() as write:
                    await make_rows(write, missing[at : at + _ROWS_AT_ONCE])

    def _tell(self, decided: Decided) -> None:
        for claim in decided.admitted:
            done = self._waiting.get(claim.id)
            if done is not None and not done.done():
                done.set_result(True)
            elif not claim.reserves:
                self._rights.end(claim)
                self._changed.set()
        for claim in decided.refused:
            done = self._waiting.get(claim.id)
            if done is not None and not done.done():
                done.set_result(False)
        if not self._rights.waiting:
            self._given.clear()

    def _forget(self) -> None:
        for claim in self._rights.forget():
            done = self._waiting.get(claim.id)
            if done is not None and not done.done():
                done.set_exception(Unavailable(_NOT_GRANTED, retry_after=1))
