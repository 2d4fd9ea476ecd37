"""The admission controller: admits requests and keeps their holds until their cost is known.

    admit(request)     the request may begin, and holds what it may cost; or 402, 429, 503
    preview(request)   the same without any effect
    charged(record)    its charge is in the journal: the actual cost counts in place of the hold
    release(id)        it ended without a charge: the hold ends

Check and hold are one step, so requests at the same time cannot spend the same credits. A hold ends
once, whichever comes first: settled, released or expired. Who could begin once others have ended
waits for a moment, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.admission import credit_rules, refusals, request_limits
from tollhouse.accounting.admission.account_cache import AccountCache
from tollhouse.accounting.admission.account_state import Hold
from tollhouse.accounting.admission.credit_rules import AdmissionContext
from tollhouse.accounting.admission.types import AdmissionPreview, Admitted
from tollhouse.kernel.errors import TollhouseError
from tollhouse.kernel.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.account_state import AccountState
    from tollhouse.accounting.admission.ports import AccountLoader
    from tollhouse.accounting.admission.types import AdmissionRefusal, AdmissionRequest
    from tollhouse.accounting.rules import AccountingRules
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)


class _QueueTicket(asyncio.Event):
    """A request's place in the queue; set when the request may begin."""

    awaits: str | None = None
    """Whose credits it waits for: a key's hash or the account's id. None where that is not known:
    it only waits behind others."""


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

        Args:
            rules: The operator's numbers.
            loader: Reads an account and a key from the database.
            clock: The time.
            reserve_capacity: Raises `Unavailable` where the journal cannot take so many more
                charges.
            max_age_seconds: See `AccountCache`.
        """
        self._rules = rules
        self._clock = clock
        self._reserve_capacity = reserve_capacity
        self._accounts = AccountCache(
            loader, clock, max_age_seconds=max_age_seconds, on_change=self._wake
        )
        self._today = clock.now().date()
        """The latest UTC day that a request came on."""
        self._holds: dict[str, Hold] = {}
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
        self._expire_holds()
        context = self._context(await self._account(request), request)
        if request.account_id not in self._queues or not self._is_behind_others(context):
            may_use_free, refused = self._verdict(context)
            if refused is None:
                return self._begin(context, may_use_free=may_use_free)
            if refused.retry_after is None or not self._rules.wait_seconds:
                raise self._error(context, refused)
        return await self._queued(request)

    def release(self, generation_id: str) -> None:
        """End the hold of a request without a charge; does nothing where it has ended."""
        hold = self._holds.pop(generation_id, None)
        if hold is not None:
            self._end(hold, 0)

    async def preview(self, request: AdmissionRequest) -> AdmissionPreview:
        """Return how a request would be received now; nothing is held or counted.

        Raises:
            Unavailable: The account cannot be read.
        """
        self._expire_holds()
        context = self._context(await self._account(request), request)
        may_use_free, refused, error = False, None, None
        try:
            may_use_free, refused = self._verdict(context)
            if refused is not None:
                raise self._error(context, refused)
            self._reserve_capacity(len(self._holds) + 1)
        except TollhouseError as refusal:
            error = refusal
        return AdmissionPreview(
            credit_limits=credit_rules.current_limits(context, refused),
            too_small=credit_rules.limits_too_small(context),
            request_limits=request_limits.current_limits(context, self._clock.now()),
            credits_nano=context.weight_nano if context.takes_credits else 0,
            key_nano=context.weight_nano if context.counts(context.key) else 0,
            admitted=Admitted(may_use_free, credit_rules.spendable_nano(context)),
            error=error,
        )

    # Called by the settler

    def charged(self, record: GenerationRecord) -> None:
        """Count a charge that is in the journal, in place of what its request held."""
        hold = self._holds.pop(record.id, None)
        self._accounts.charged(record)
        if hold is not None:
            self._end(hold, record.charge.cost_nano)

    def booked(self, records: Sequence[GenerationRecord]) -> None:
        """Learn that charges are in the database."""
        self._accounts.booked(records)

    def invalidate(self, account_id: str) -> None:
        """Have an account read again before its next request: something of it has changed."""
        self._accounts.invalidate(account_id)

    def refresh(self, account_id: str) -> None:
        """Have an account read again beside its requests, which need not wait for it."""
        self._accounts.refresh(account_id)

    # One step each, without waiting

    def _context(self, account: AccountState, request: AdmissionRequest) -> AdmissionContext:
        key, now = account.key(request.key_hash), self._clock.monotonic()
        payer = None if request.payer_hash is None else account.key(request.payer_hash)
        return AdmissionContext(account, key, request, self._rules, now, payer)

    def _verdict(self, context: AdmissionContext) -> tuple[bool, AdmissionRefusal | None]:
        """Tell whether a request may use free models, and why it may not begin for its credits.

        Raises:
            RateLimited: It comes too often, whatever its credits are.
        """
        request = context.request
        limited = request.free or request.rate is not None
        may_use_free = limited and request_limits.check_request_limits(context, self._clock.now())
        return may_use_free, credit_rules.refusal(context)

    def _begin(self, context: AdmissionContext, *, may_use_free: bool) -> Admitted:
        self._reserve_capacity(len(self._holds) + 1)
        account, request = context.account, context.request
        hold = Hold(
            account,
            request,
            keys=[key for key, _ in context.keys if context.counts(key)],
            nano=context.weight_nano,
            credits_nano=context.weight_nano if context.takes_credits else 0,
            free=may_use_free and request_limits.is_gated(account, request),
            expires=context.now + self._rules.hold_seconds,
        )
        request_limits.take(context, may_use_free=may_use_free)
        account.in_flight.begin(request.estimate_nano)
        account.held_nano += hold.credits_nano
        for key in hold.keys:
            key.held_nano += hold.nano
        account.free_held += hold.free
        self._holds[request.generation_id] = hold
        return Admitted(may_use_free, credit_rules.spendable_nano(context))

    def _end(self, hold: Hold, actual_nano: int) -> None:
        account, request = hold.account, hold.request
        now, window = self._clock.monotonic(), self._rules.settlement_seconds
        account.in_flight.end(request.estimate_nano, actual_nano, now, window)
        account.held_nano -= hold.credits_nano
        for key in hold.keys:
            key.held_nano -= hold.nano
        account.free_held -= hold.free
        self._wake(request.account_id)

    def _expire_holds(self) -> None:
        """End the oldest holds if their requests never did: a bug, but none that locks credits."""
        now = self._clock.monotonic()
        while self._holds:
            oldest = next(iter(self._holds.values()))
            if oldest.expires > now:
                return
            _log.error("hold_expired", generation=oldest.request.generation_id)
            self.release(oldest.request.generation_id)

    def _error(self, context: AdmissionContext, refused: AdmissionRefusal) -> TollhouseError:
        limits = credit_rules.current_limits(context, refused)
        return refusals.payment_required(refused, limits, self._rules.source_prefix)

    # Waiting

    async def _account(self, request: AdmissionRequest) -> AccountState:
        self._reload_after_clock_change(request.now.date())
        keys = (request.key_hash,)
        if request.payer_hash is not None:
            keys = (request.key_hash, request.payer_hash)
        known = self._accounts.known(request.account_id, *keys)
        return known or await self._accounts.fresh(request.account_id, *keys)

    def _reload_after_clock_change(self, day: date) -> None:
        """Have every account read again once the clock was set back: earlier days count, too."""
        if day < self._today:
            day = self._clock.now().date()  # a request from before midnight is no earlier clock
            if day < self._today:
                self._accounts.invalidate_all()
        self._today = day

    def _is_behind_others(self, context: AdmissionContext) -> bool:
        """Tell whether a request would take what others of its account wait for."""
        wanted = credit_rules.contended_credits(context)
        tickets = self._queues[context.request.account_id]
        return any(ticket.awaits in wanted if ticket.awaits else wanted for ticket in tickets)

    async def _queued(self, request: AdmissionRequest) -> Admitted:
        """Wait in the account's queue for what others hold."""
        deadline = self._clock.monotonic() + self._rules.wait_seconds
        queue = self._queues.setdefault(request.account_id, deque())
        ticket = _QueueTicket()
        queue.append(ticket)
        try:
            while True:
                ticket.clear()
                context = self._context(await self._account(request), request)
                (may_use_free, refused), left = self._verdict(context), deadline - context.now
                if refused is None and (queue[0] is ticket or left <= 0):
                    return self._begin(context, may_use_free=may_use_free)
                if refused is not None and (refused.retry_after is None or left <= 0):
                    raise self._error(context, refused)
                ticket.awaits = (
                    None if refused is None else credit_rules.awaited_credits(request, refused)
                )
                # Only the first can begin; it wakes the next one when it leaves.
                change = (
                    context.account.in_flight.next_change(context.now)
                    if queue[0] is ticket
                    else None
                )
                pause = left if change is None else min(left, change - context.now)
                await wait_for_event(ticket, pause)
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
