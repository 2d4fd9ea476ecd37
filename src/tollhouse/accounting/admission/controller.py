"""The admission controller: admits requests and keeps their holds until their cost is known.

Check and hold are one step, so requests at the same time cannot spend the same credits. A hold ends
once, whichever comes first: settled, released or expired. Who could begin once others have ended
waits for a moment, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.admission.accounts import AccountCache, AccountLoader
from tollhouse.accounting.admission.rules import (
    AdmissionContext,
    awaited_credits,
    check_request_limits,
    contended_credits,
    count_request,
    credit_refusal,
    current_credit_limits,
    current_request_limits,
    limits_too_small,
)
from tollhouse.accounting.admission.types import OWN, AdmissionPreview, Admitted
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.errors import RateLimited, TollhouseError, Unavailable
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.types import AdmissionRefusal, AdmissionRequest
    from tollhouse.accounting.limits import AccountingRules
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)


class _QueueTicket(asyncio.Event):
    """A request's place in the queue; set when the request may begin."""

    awaits: str | None = None
    """What it waits for: a budget, by its name, or the account, by its id. None where that is not
    known: it only waits behind others."""


def _admitted(context: AdmissionContext, *, may_use_free: bool) -> Admitted:
    return Admitted(may_use_free, context.spendable_nano, context.own_spendable_nano)


class AdmissionController:
    """Admits the requests of every account."""

    def __init__(
        self,
        rules: AccountingRules,
        loader: AccountLoader,
        clock: Clock,
        *,
        reserve_capacity: Callable[[int], None] = lambda _: None,
        max_age_seconds: float | None = None,
    ) -> None:
        """Read nothing before the first request.

        `reserve_capacity` raises `Unavailable` where the journal cannot take so many more charges;
        of `max_age_seconds` see `AccountCache`.
        """
        self._rules = rules
        self._clock = clock
        self._reserve_capacity = reserve_capacity
        self._accounts = AccountCache(
            loader, clock, max_age_seconds=max_age_seconds, on_change=self._wake
        )
        self._today = clock.now().date()
        """The latest UTC day that a request came on."""
        self._holds: dict[str, AdmissionContext] = {}
        self._queues: dict[str, deque[_QueueTicket]] = {}

    @property
    def holds(self) -> int:
        """How many requests hold something now."""
        return len(self._holds)

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
        self._expire_holds()
        context = self._context(request)
        if context is None or self._is_behind_others(context):
            return None
        may_use_free, refused = self._verdict(context)
        if refused is None:
            return self._begin(context, may_use_free=may_use_free)
        if refused.retry_after is None or not self._rules.wait_seconds:
            raise self._error(context, refused)
        return None

    def release(self, generation_id: str) -> None:
        """End the hold of a request without a charge; does nothing where it has ended."""
        hold = self._holds.pop(generation_id, None)
        if hold is not None:
            self._end(hold, 0)

    def may_use_free(self, generation_id: str) -> bool:
        """Count a request to free models after all, since own keys have failed; false: no room."""
        hold = self._holds.get(generation_id)
        if hold is None or not hold.request.free_later:
            return True
        hold.request.free_later = False
        now = AdmissionContext(hold.account, hold.request, self._rules, self._clock.monotonic())
        try:
            may_use_free = check_request_limits(now, self._clock.now())
        except RateLimited:
            return False
        self._count_free(now, may_use_free=may_use_free)
        hold.holds_free = now.holds_free
        return may_use_free

    async def know(self, account_id: str, key_hashes: Sequence[str]) -> None:
        """Read an account if it was never read, so that `is_free_own` knows what is left."""
        if not self._accounts.is_read(account_id):
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

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        """Return how a request would be received now; nothing is held or counted."""
        self._expire_holds()
        context = await self._fresh_context(request)
        may_use_free, refused, error = False, None, None
        try:
            may_use_free, refused = self._verdict(context)
            if refused is not None:
                raise self._error(context, refused)
            self._reserve_capacity(len(self._holds) + 1)
        except TollhouseError as refusal:
            error = refusal
        of_own = (held.weight_nano for held in context.counted if held.label is OWN)
        return AdmissionPreview(
            credit_limits=current_credit_limits(context, refused),
            too_small=limits_too_small(context),
            request_limits=current_request_limits(context, self._clock.now()),
            credits_nano=context.credits_nano,
            key_nano=next(of_own, 0),
            admitted=_admitted(context, may_use_free=may_use_free),
            error=error,
            own_fee=context.own_fee,
        )

    # Called by the settler

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a charge that is in the journal, in place of what its request held."""
        hold = self._holds.pop(record.id, None)
        self._accounts.charged(record, number)
        if hold is not None:
            self._end(hold, 0 if record.is_byok else record.cost_nano)

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        """Learn that charges are in the database, the last one with that number."""
        self._accounts.booked(records, number)

    def invalidate(self, account_id: str) -> None:
        """Have an account read again before its next request: something of it has changed."""
        self._accounts.invalidate(account_id)

    async def reload(self, account_id: str, key_hashes: Sequence[str]) -> None:
        """Read an account that has changed now, if it is known, so that no request waits for it."""
        if self._accounts.is_known(account_id):
            with suppress(Unavailable):  # the next request tries again
                await self._accounts.read(account_id, key_hashes)

    def refresh(self, account_id: str) -> None:
        """Have an account read again beside its requests, which need not wait for it."""
        self._accounts.refresh(account_id)

    # One step each, without waiting

    def _verdict(self, context: AdmissionContext) -> tuple[bool, AdmissionRefusal | None]:
        """Tell whether a request may use free models, and why its credits do not suffice."""
        request = context.request
        if request.free_later:
            return True, credit_refusal(context)
        limited = request.free or request.rate is not None
        may_use_free = limited and check_request_limits(context, self._clock.now())
        return may_use_free, credit_refusal(context)

    def _begin(self, context: AdmissionContext, *, may_use_free: bool) -> Admitted:
        self._reserve_capacity(len(self._holds) + 1)
        account, request = context.account, context.request
        if not request.free_later:
            self._count_free(context, may_use_free=may_use_free)
        account.in_flight.begin(request.estimate_nano)
        account.held_nano += context.credits_nano
        for budget, _, weight_nano in context.counted:
            budget.held_nano += weight_nano
        if context.is_free_own:
            account.own_free[request.generation_id] = context.today
        self._holds[request.generation_id] = context
        blocking_failpoint("request.held")
        return _admitted(context, may_use_free=may_use_free)

    def _count_free(self, context: AdmissionContext, *, may_use_free: bool) -> None:
        count_request(context, may_use_free=may_use_free)
        context.holds_free = may_use_free and context.counts_as_free
        context.account.free_held += context.holds_free

    def _end(self, hold: AdmissionContext, actual_nano: int) -> None:
        account, request = hold.account, hold.request
        now, window = self._clock.monotonic(), self._rules.settlement_seconds
        account.in_flight.end(request.estimate_nano, actual_nano, now, window)
        account.held_nano -= hold.credits_nano
        for budget, _, weight_nano in hold.counted:
            budget.held_nano -= weight_nano
        account.free_held -= hold.holds_free
        if account.own_free:
            account.own_free.pop(request.generation_id, None)
        self._wake(request.account_id)

    def _expire_holds(self) -> None:
        """End the oldest holds if their requests never did: a bug, but none that locks credits."""
        now = self._clock.monotonic()
        while self._holds:
            oldest = next(iter(self._holds.values()))
            if oldest.now + self._rules.hold_seconds > now:
                return
            _log.error("hold_expired", generation=oldest.request.generation_id)
            self.release(oldest.request.generation_id)

    def _error(self, context: AdmissionContext, refused: AdmissionRefusal) -> TollhouseError:
        limits = current_credit_limits(context, refused)
        return refused.payment_required(limits, self._rules.source_prefix)

    # Waiting

    def _context(self, request: AdmissionRequest) -> AdmissionContext | None:
        """Return what decides about a request; None where its account has to be read first."""
        self._reload_after_clock_change(request.now.date())
        account = self._accounts.known(request.account_id, request.key_hashes, request.end_user)
        if account is None:
            return None
        return AdmissionContext(account, request, self._rules, self._clock.monotonic())

    async def _fresh_context(self, request: AdmissionRequest) -> AdmissionContext:
        while (context := self._context(request)) is None:
            await self._read(request)
        return context

    async def _read(self, request: AdmissionRequest) -> None:
        await self._accounts.read(request.account_id, request.key_hashes, request.end_user)

    def _reload_after_clock_change(self, day: date) -> None:
        """Have every account read again once the clock was set back: earlier days count, too."""
        if day < self._today:
            day = self._clock.now().date()  # a request from before midnight is no earlier clock
            if day < self._today:
                self._accounts.invalidate_all()
        self._today = day

    def _is_behind_others(self, context: AdmissionContext) -> bool:
        """Tell whether a request would take what others of its account wait for."""
        tickets = self._queues.get(context.request.account_id)
        if tickets is None:
            return False
        wanted = contended_credits(context)
        return any(ticket.awaits in wanted if ticket.awaits else wanted for ticket in tickets)

    async def _queued(self, request: AdmissionRequest) -> Admitted:
        deadline = self._clock.monotonic() + self._rules.wait_seconds
        queue = self._queues.setdefault(request.account_id, deque())
        ticket = _QueueTicket()
        queue.append(ticket)
        try:
            while True:
                ticket.clear()
                context = await self._fresh_context(request)
                (may_use_free, refused), left = self._verdict(context), deadline - context.now
                if refused is None and (queue[0] is ticket or left <= 0):
                    return self._begin(context, may_use_free=may_use_free)
                if refused is not None and (refused.retry_after is None or left <= 0):
                    raise self._error(context, refused)
                ticket.awaits = None if refused is None else awaited_credits(context, refused)
                # Only the first can begin; it wakes the next one when it leaves.
                if queue[0] is ticket:
                    change = context.account.in_flight.next_change(context.now)
                    left = left if change is None else min(left, change - context.now)
                await wait_for_event(ticket, left)
        finally:
            queue.remove(ticket)
            if queue:
                queue[0].set()
            else:
                del self._queues[request.account_id]

    def _wake(self, account_id: str) -> None:
        queue = self._queues.get(account_id)
        if queue:
            queue[0].set()
