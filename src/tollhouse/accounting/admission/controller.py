"""The admission controller: admits requests and keeps their holds until their cost is known.

Check and hold are one step, so requests at the same time cannot spend the same credits. A hold ends
once, whichever comes first: settled, released or expired. Who could begin once others have ended
waits for a moment, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.accounting.admission import rules as check
from tollhouse.accounting.admission.accounts import AccountCache
from tollhouse.accounting.admission.budgets import (
    AdmissionContext,
    SpendClaim,
    budget_id,
    claim_of,
    given_limits,
    reserved_of,
)
from tollhouse.accounting.admission.leasing import LEAST_WAIT_SECONDS
from tollhouse.accounting.admission.types import AdmissionPreview, AdmissionRequest, Admitted
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.eager_task import in_task
from tollhouse.kernel.errors import RateLimited, TollhouseError, Unavailable
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.accounts import AccountLoader
    from tollhouse.accounting.admission.leasing import SharedBudgets
    from tollhouse.accounting.admission.types import AdmissionRefusal
    from tollhouse.accounting.limits import AccountingRules, Budget
    from tollhouse.accounting.types import GenerationRecord, Reservation, Right
    from tollhouse.kernel.clock import Clock

_PLAIN: Final = Admitted(may_use_free=False)
_log = structlog.get_logger(__name__)


class _QueueTicket(asyncio.Event):
    """A request's place in the queue; set when the request may begin."""

    asks: bool = False
    """Whether it waits for the database alone, so that the next one need not wait for it."""
    awaits: Budget | None = None
    """What it waits for. None where that is not known: it only waits behind others."""


def _first(queue: Iterable[_QueueTicket]) -> _QueueTicket | None:
    """Return who has waited longest, but for those that wait for the database."""
    return next((ticket for ticket in queue if not ticket.asks), None)


class AdmissionController:
    """Admits the requests of every account."""

    def __init__(  # noqa: PLR0913 - the composition root calls it once
        self,
        rules: AccountingRules,
        loader: AccountLoader,
        clock: Clock,
        *,
        reserve_capacity: Callable[[int], None] = lambda _: None,
        max_age_seconds: float | None = None,
        shared: SharedBudgets | None = None,
    ) -> None:
        """Read nothing before the first request.

        `reserve_capacity` raises `Unavailable` where the journal cannot take so many more charges;
        of `max_age_seconds` see `AccountCache`; `shared` is None where nobody else spends.
        """
        self._shared = shared
        self._rules = rules
        self._clock = clock
        self._reserve_capacity = reserve_capacity
        self._accounts = AccountCache(
            rules, loader, clock, max_age_seconds=max_age_seconds, on_change=self._wake
        )
        self._today = clock.now().date()
        """The latest UTC day that a request came on."""
        self._holds: dict[str, AdmissionContext] = {}
        self._expires_at = clock.monotonic()
        """When to look for holds that have expired: before that none has."""
        self._queues: dict[str, deque[_QueueTicket]] = {}

    @property
    def holds(self) -> int:
        """How many requests hold something now."""
        return len(self._holds)

    # Requests

    async def admit(self, request: AdmissionRequest) -> Admitted:
        """Let a request begin, and hold what it may cost until its cost is known.

        Raises:
            PaymentRequired: Credits, or a limit of them, do not suffice.
            RateLimited: Too many requests to free models, or to a model with a limit of its own.
            Unavailable: Its charge could not be kept, or the account cannot be read.
        """
        admitted = self.try_admit(request)
        if admitted is None and self._context(request) is None:
            await self._read(request)
            admitted = self.try_admit(request)
        return await self._queued(request) if admitted is None else admitted

    def try_admit(self, request: AdmissionRequest) -> Admitted | None:
        """Do the same without waiting; None where `admit` would wait, for whatever reason.

        It waits for an account to be read, behind others, or until others have ended.
        """
        if self._clock.monotonic() >= self._expires_at:
            self._expire_holds()
        context = self._context(request)
        if context is None or (self._queues and self._is_behind_others(context)):
            return None
        may_use_free, refused = self._verdict(context)
        if refused is not None:
            if refused.retry_after is None or not self._rules.wait_seconds:
                raise self._error(context, refused)
            return None
        claim = None
        if self._shared is not None:
            if check.counted_rate(context, may_use_free=may_use_free) is not None:
                return None
            claim = claim_of(context, may_use_free=may_use_free)
            if claim is not None and not self._shared.take(claim):
                return None
        return self._begin(context, claim, may_use_free=may_use_free)

    def release(self, generation_id: str) -> None:
        """End the hold of a request without a charge; does nothing where it has ended."""
        hold = self._holds.pop(generation_id, None)
        if hold is not None:
            self._give_back(hold.claim)
            self._end(hold, 0)

    def _give_back(self, claim: SpendClaim | None) -> None:
        if claim is not None and self._shared is not None:
            self._shared.end(claim)

    async def may_use_free(self, generation_id: str) -> bool:
        """Count a request to free models after all, since own keys have failed; false: no room.

        Neither is there any where others count, too, and the database does not answer.
        """
        hold = self._holds.get(generation_id)
        if hold is None:
            return True
        request = hold.request
        if request.free_later:
            request.free_later = False
            now = self._clock.monotonic()
            context = AdmissionContext(hold.account, request, self._rules, hold.today, now)
            try:
                may_use_free = check.check_request_limits(context, self._clock.now())
                if may_use_free and self._shared is not None:
                    may_use_free = await self._claims_free_request(self._shared, hold, context)
            except (RateLimited, Unavailable):
                may_use_free = False
            if self._counts_as_free(context, may_use_free=may_use_free):
                hold.account.free.held_nano += 1
                hold.counted = [*hold.counted, (hold.account.free, 1)]
            request.others_use_free = not may_use_free
        return not request.others_use_free

    async def _claims_free_request(
        self, shared: SharedBudgets, hold: AdmissionContext, context: AdmissionContext
    ) -> bool:
        """Claim a free request where other processes count, too; false: they leave none."""
        await in_task()
        if not context.counts_as_free:
            return True
        if not await self._is_counted(shared, context):
            return False
        free = budget_id(context.account.free, context.today)
        claim = SpendClaim(hold.request.generation_id, {free: 1})
        if not await shared.wait(claim, context.now, given_limits(context, claim)):
            return False
        if self._holds.get(hold.request.generation_id) is not hold:
            self._give_back(claim)  # its client has gone
            return False
        if hold.claim is None:
            hold.claim = claim
        else:
            hold.claim.amounts = {**hold.claim.amounts, **claim.amounts}
        return True

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        """Return how a request would be received now; nothing is held or counted."""
        self._expire_holds()
        if self._shared is not None:
            self._accounts.invalidate(request.account_id)  # nobody told what others have charged
        context = await self._fresh_context(request)
        may_use_free, refused, error = False, None, None
        try:
            may_use_free, refused = self._verdict(context)
            if refused is not None:
                raise self._error(context, refused)
            self._reserve_capacity(len(self._holds) + 1)
        except TollhouseError as refusal:
            error = refusal
        return AdmissionPreview(
            credit_limits=check.current_credit_limits(context, refused),
            too_small=check.limits_too_small(context),
            request_limits=check.current_request_limits(context, self._clock.now()),
            credits_nano=context.account.balance.is_limited * context.held_of(request.account_id),
            key_nano=context.held_of(context.key_hash),
            admitted=_admitted(context, may_use_free=may_use_free),
            error=error,
            own_fee=context.own_fee,
        )

    # The allowance of requests with own keys

    async def know(self, account_id: str, key_hashes: Sequence[str]) -> None:
        """Read an account if it was never read, so that `is_free_own` knows what is left."""
        if self._accounts.state(account_id) is None:
            await self._accounts.read(account_id, key_hashes)

    def is_free_own(self, generation_id: str, account_id: str, day: date) -> bool:
        """Tell whether a generation that own keys served costs no fee; it keeps its place then.

        Its charge takes that place, or its end without one. That of a batch's, which has no hold,
        is for `own_booked` to take.
        """
        account = self._accounts.state(account_id)
        if account is None:
            return False
        if generation_id not in account.own_free:
            if not account.has_free_own(day, self._rules.free_own_a_month):
                return False
            account.own_free[generation_id] = day
        return True

    def own_booked(self, record: GenerationRecord) -> None:
        """Learn that a batch's generation of own keys is in the books."""
        if (account := self._accounts.state(record.account_id)) is not None:
            account.count_own(record)

    def own_dropped(self, record: GenerationRecord) -> None:
        """Learn that it never will be."""
        if (account := self._accounts.state(record.account_id)) is not None:
            account.own_free.pop(record.id, None)

    # Called by the settler

    def rights_of(self, record: GenerationRecord) -> tuple[Right, ...]:
        """Return what a charge uses up of what this process was granted, before it is kept."""
        hold = None if self._shared is None else self._holds.get(record.id)
        if self._shared is None or hold is None or hold.claim is None:
            return ()
        return self._shared.rights_of(hold.claim, record)

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a charge that is in the journal, in place of what its request held."""
        hold = self._holds.pop(record.id, None)
        self._accounts.charged(record, number)
        if hold is not None:
            cost_nano = 0 if record.is_byok else record.cost_nano
            if hold.claim is not None and self._shared is not None:
                self._shared.end(hold.claim, record.rights, number, cost_nano)
            self._end(hold, cost_nano)

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        """Learn that charges are in the database, the last one with that number."""
        self._accounts.booked(records, number)
        if self._shared is not None:
            self._shared.booked(number)

    # Changes, and batches

    def invalidate(self, account_id: str | None) -> None:
        """Have an account, or all, read again before the next request: something has changed."""
        self._accounts.invalidate(account_id)

    def refresh(self, account_id: str | None) -> None:
        """Have an account, or all, read again beside its requests, which need not wait for it."""
        self._accounts.refresh(account_id)

    async def reload(self, account_id: str, key_hashes: Sequence[str]) -> None:
        """Read an account that has changed now, if it is known, so that no request waits for it."""
        if self._accounts.state(account_id) is not None:
            with suppress(Unavailable):  # the next request tries again
                await self._accounts.read(account_id, key_hashes)

    async def reserve(self, reservation: Reservation) -> None:
        """Set credits aside for a batch where other processes spend them, too, if there are enough.

        Raises:
            Unavailable: The account cannot be read, or the database does not answer.
        """
        if self._shared is None:
            return
        keys, now = reservation.key_hashes, self._clock.now()
        while (account := self._accounts.known(reservation.account_id, keys)) is None:
            await self._accounts.read(reservation.account_id, keys)
        request = AdmissionRequest(reservation.id, reservation.account_id, keys, now)
        amount_nano, with_own_nano = reservation.amount_nano, reservation.with_own_nano
        held = reserved_of(account.budgets(request), amount_nano, with_own_nano)
        if held:
            amounts = {budget_id(budget, now.date()): nano for budget, nano in held}
            await self._shared.reserve(reservation, amounts)

    # One step each, without waiting

    def _verdict(self, context: AdmissionContext) -> tuple[bool, AdmissionRefusal | None]:
        """Tell whether a request may use free models, and why its credits do not suffice."""
        request, may_use_free = context.request, False
        if request.free_later:
            may_use_free = True
        elif request.free or request.rate is not None:
            may_use_free = check.check_request_limits(context, self._clock.now())
            may_use_free = may_use_free and not request.others_use_free
        return may_use_free, check.credit_refusal(context)

    def _begin(
        self, context: AdmissionContext, claim: SpendClaim | None, *, may_use_free: bool
    ) -> Admitted:
        """Hold what a request may cost; it has what it claims of shared budgets already."""
        try:
            self._reserve_capacity(len(self._holds) + 1)
        except Unavailable:
            self._give_back(claim)
            raise
        account, request = context.account, context.request
        context.claim = claim
        limited = (request.free or request.rate is not None) and not request.free_later
        if limited and self._counts_as_free(context, may_use_free=may_use_free):
            context.counted = [*context.counted, (account.free, 1)]
        account.in_flight.running_nano += request.estimate_nano
        for budget, nano in context.counted:
            budget.held_nano += nano
        if context.is_free_own:
            account.own_free[request.generation_id] = context.today
        self._holds[request.generation_id] = context
        blocking_failpoint("request.held")
        return _admitted(context, may_use_free=may_use_free)

    @staticmethod
    def _counts_as_free(context: AdmissionContext, *, may_use_free: bool) -> bool:
        """Count a request towards its minute; tell whether it counts towards the day's, too."""
        if (rate := check.counted_rate(context, may_use_free=may_use_free)) is not None:
            context.account.minutes[rate.model].take(context.now)
        return may_use_free and context.counts_as_free

    def _end(self, hold: AdmissionContext, actual_nano: int) -> None:
        account, request = hold.account, hold.request
        now, window = self._clock.monotonic(), self._rules.settlement_seconds
        account.in_flight.end(request.estimate_nano, actual_nano, now, window)
        for budget, nano in hold.counted:
            budget.held_nano -= nano
        if account.own_free:
            account.own_free.pop(request.generation_id, None)
        if self._queues:
            self._wake(request.account_id)

    def _expire_holds(self) -> None:
        """End the oldest holds if their requests never did: a bug, but none that locks credits."""
        now = self._clock.monotonic()
        while (oldest := next(iter(self._holds.values()), None)) is not None:
            self._expires_at = oldest.now + self._rules.hold_seconds
            if self._expires_at > now:
                return
            _log.error("hold_expired", generation=oldest.request.generation_id)
            self.release(oldest.request.generation_id)
        self._expires_at = now + self._rules.hold_seconds

    def _error(self, context: AdmissionContext, refused: AdmissionRefusal) -> TollhouseError:
        limits = check.current_credit_limits(context, refused)
        return refused.payment_required(limits, self._rules.source_prefix)

    def _context(self, request: AdmissionRequest) -> AdmissionContext | None:
        """Return what decides about a request; None where its account has to be read first."""
        today = request.now.date()
        if today != self._today:
            self._see_day(today)
        account = self._accounts.known(request.account_id, request.key_hashes, request.end_user)
        if account is None:
            return None
        return AdmissionContext(account, request, self._rules, today, self._clock.monotonic())

    def _see_day(self, day: date) -> None:
        """Have every account read again once the clock was set back: earlier days count, too."""
        if day < self._today:
            day = self._clock.now().date()  # a request from before midnight is no earlier clock
            if day < self._today:
                self._accounts.invalidate(None)
        self._today = day

    async def _fresh_context(self, request: AdmissionRequest) -> AdmissionContext:
        while (context := self._context(request)) is None:
            await self._read(request)
        return context

    async def _read(self, request: AdmissionRequest) -> None:
        await self._accounts.read(request.account_id, request.key_hashes, request.end_user)

    # Waiting

    def _is_behind_others(self, context: AdmissionContext) -> bool:
        """Tell whether a request would take what others of its account wait for."""
        wanted = check.contended(context)
        return any(
            any(ticket.awaits is None or ticket.awaits is budget for budget in wanted)
            for ticket in self._queues.get(context.request.account_id, ())
        )

    async def _queued(self, request: AdmissionRequest) -> Admitted:
        arrived = self._clock.monotonic()
        deadline = arrived + self._rules.wait_seconds
        queue = self._queues.setdefault(request.account_id, deque())
        ticket = _QueueTicket()
        queue.append(ticket)
        try:
            while True:
                ticket.clear()
                context = await self._fresh_context(request)
                (may_use_free, refused), left = self._verdict(context), deadline - context.now
                is_first = _first(queue) is ticket
                if refused is None and (is_first or left <= 0):
                    if self._shared is None:
                        return self._begin(context, None, may_use_free=may_use_free)
                    ticket.asks = True
                    self._wake(request.account_id)
                    claim = claim_of(context, may_use_free=may_use_free)
                    admitted = await self._begin_shared(self._shared, context, claim, arrived)
                    if admitted is not None:
                        return admitted
                    ticket.asks = False
                    continue
                if refused is not None and (refused.retry_after is None or left <= 0):
                    raise self._error(context, refused)
                ticket.awaits = None if refused is None else check.awaited(context, refused)
                # Only the first can begin; it wakes the next one when it leaves.
                if is_first:
                    change = context.account.in_flight.next_change(context.now)
                    left = left if change is None else min(left, change - context.now)
                await wait_for_event(ticket, left)
        finally:
            queue.remove(ticket)
            self._wake(request.account_id)
            if not queue:
                del self._queues[request.account_id]

    async def _begin_shared(
        self,
        shared: SharedBudgets,
        context: AdmissionContext,
        claim: SpendClaim | None,
        arrived: float,
    ) -> Admitted | None:
        """Let a request begin that the database is asked about; None: look again at what is known.

        Raises:
            PaymentRequired: The database said that others leave too little.
            RateLimited: The same of free requests, or of a minute.
            Unavailable: It did not answer.
        """
        request, held = context.request, None
        try:
            if claim is not None:
                given = given_limits(context, claim)
                held = claim if await shared.wait(claim, arrived, given) else None
            if claim is not None and held is None:
                # Others have spent what is known here as left: what is there now decides.
                self._accounts.invalidate(request.account_id)
            elif not await self._is_counted(shared, context):
                return None
            now = await self._fresh_context(request)
            may_use_free, refused = self._verdict(now)
            if refused is not None:
                return None
            again = claim_of(now, may_use_free=may_use_free)
            covers = again is None or (claim is not None and claim.covers(again))
            if covers and (claim is None or held is not None):
                held = None
                return self._begin(now, claim, may_use_free=may_use_free)
            over = now.now > arrived + self._rules.wait_seconds + LEAST_WAIT_SECONDS
            is_same = again is not None and claim is not None and claim.amounts == again.amounts
            if claim is None or not (over or (held is None and is_same)):
                return None
            if self._leaves_free(now, claim):
                return None
            raise self._error(now, check.held_elsewhere(now, claim))
        finally:
            self._give_back(held)

    async def _is_counted(self, shared: SharedBudgets, context: AdmissionContext) -> bool:
        """Count a request towards its limit of a minute; false: it goes on without free models.

        Raises:
            RateLimited: Too many have come to any process.
            Unavailable: The database did not answer.
        """
        request = context.request
        rate = check.counted_rate(
            context, may_use_free=request.free and not request.others_use_free
        )
        if rate is None or request.counted:
            return True
        wait = await shared.take_token(request.account_id, rate)
        if wait <= 0:
            request.counted = True
        elif request.free and not request.only_free:
            request.others_use_free = True
        else:
            raise check.too_many_in_a_minute(rate, wait, self._clock.now())
        return request.counted

    @staticmethod
    def _leaves_free(context: AdmissionContext, claim: SpendClaim) -> bool:
        """Have a request go on without free models, if others leave it none and it wants more."""
        request, of_free = context.request, budget_id(context.account.free, context.today)
        if request.only_free or of_free not in claim.amounts:
            return False
        if claim.short and of_free not in claim.short:
            return False
        request.others_use_free = True
        return True

    def _wake(self, account_id: str) -> None:
        first = _first(self._queues.get(account_id, ()))
        if first is not None:
            first.set()


def _admitted(context: AdmissionContext, *, may_use_free: bool) -> Admitted:
    if not may_use_free and context.spendable_nano is None and context.own_spendable_nano is None:
        return _PLAIN  # as most are
    return Admitted(may_use_free, context.spendable_nano, context.own_spendable_nano)
