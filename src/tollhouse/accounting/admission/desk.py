"""The desk: admits requests and keeps what they hold until their cost is known.

    admit(claim)       the request may begin, and holds what it may cost; or 402, 429, 503
    preview(claim)     the same without any effect
    taken(record)      its charge is in the journal: the actual cost counts in place of the hold
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

from tollhouse.accounting.admission import decide, free, refusals
from tollhouse.accounting.admission.account import Hold
from tollhouse.accounting.admission.decide import Case
from tollhouse.accounting.admission.roster import Roster
from tollhouse.accounting.admission.types import Admitted, Preview
from tollhouse.kernel.errors import TollhouseError
from tollhouse.kernel.waiting import happens_within

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.account import AccountState
    from tollhouse.accounting.admission.ports import Standing
    from tollhouse.accounting.admission.types import Claim, Refusal
    from tollhouse.accounting.rules import Rules
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)


class _Turn(asyncio.Event):
    """That of a request in the queue; set when it may begin."""

    awaits: str | None = None
    """Whose credits it waits for: a key's hash or the account's id. None where that is not known:
    it only waits behind others."""


class Desk:
    """Admits the requests of every account."""

    def __init__(
        self,
        rules: Rules,
        standing: Standing,
        clock: Clock,
        *,
        room: Callable[[int], None] = lambda _: None,
        max_age_seconds: float | None = None,
    ) -> None:
        """Take what it needs; nothing is read before the first request.

        Args:
            rules: The operator's numbers.
            standing: Reads what the books say.
            clock: The time.
            room: Raises `Unavailable` where the journal cannot take so many more charges.
            max_age_seconds: See `Roster`.
        """
        self._rules = rules
        self._clock = clock
        self._room = room
        self._roster = Roster(
            standing, clock, max_age_seconds=max_age_seconds, on_change=self._wake
        )
        self._today = clock.now().date()
        """The latest UTC day that a request came on."""
        self._holds: dict[str, Hold] = {}
        self._queues: dict[str, deque[_Turn]] = {}

    @property
    def holds(self) -> int:
        """How many requests hold something now."""
        return len(self._holds)

    async def admit(self, claim: Claim) -> Admitted:
        """Let a request begin, and hold what it may cost until its cost is known.

        Raises:
            PaymentRequired: Credits, or a limit of them, do not suffice.
            RateLimited: Too many requests to free models, or to a model with a limit of its own.
            Unavailable: Its charge could not be kept, or the account cannot be read.
        """
        self._expire()
        case = self._case(await self._account(claim), claim)
        if claim.account_id not in self._queues or not self._is_behind_others(case):
            may_use_free, refused = self._verdict(case)
            if refused is None:
                return self._begin(case, may_use_free=may_use_free)
            if refused.retry_after is None or not self._rules.wait_seconds:
                raise self._error(case, refused)
        return await self._queued(claim)

    def release(self, generation_id: str) -> None:
        """End the hold of a request without a charge; does nothing where it has ended."""
        hold = self._holds.pop(generation_id, None)
        if hold is not None:
            self._end(hold, 0)

    async def preview(self, claim: Claim) -> Preview:
        """Return how a request would be received now; nothing is held or counted.

        Raises:
            Unavailable: The account cannot be read.
        """
        self._expire()
        case = self._case(await self._account(claim), claim)
        may_use_free, refused, error = False, None, None
        try:
            may_use_free, refused = self._verdict(case)
            if refused is not None:
                raise self._error(case, refused)
            self._room(len(self._holds) + 1)
        except TollhouseError as refusal:
            error = refusal
        return Preview(
            caps=decide.caps(case, refused),
            too_small=decide.too_small(case),
            requests=free.caps(case, self._clock.now()),
            credits_nano=case.weight_nano if case.takes_credits else 0,
            key_nano=case.weight_nano if case.counts(case.key) else 0,
            admitted=Admitted(may_use_free, decide.spendable_nano(case)),
            error=error,
        )

    # What the settler tells

    def taken(self, record: GenerationRecord) -> None:
        """Count a charge that is in the journal, in place of what its request held."""
        hold = self._holds.pop(record.id, None)
        self._roster.taken(record)
        if hold is not None:
            self._end(hold, record.charge.cost_nano)

    def booked(self, records: Sequence[GenerationRecord]) -> None:
        """Learn that charges are in the database."""
        self._roster.booked(records)

    def stale(self, account_id: str) -> None:
        """Have an account read again before its next request: something of it has changed."""
        self._roster.stale(account_id)

    def outdated(self, account_id: str) -> None:
        """Have an account read again beside its requests, which need not wait for it."""
        self._roster.outdated(account_id)

    # One step each, without waiting

    def _case(self, account: AccountState, claim: Claim) -> Case:
        key, now = account.key(claim.key_hash), self._clock.monotonic()
        payer = None if claim.payer_hash is None else account.key(claim.payer_hash)
        return Case(account, key, claim, self._rules, now, payer)

    def _verdict(self, case: Case) -> tuple[bool, Refusal | None]:
        """Tell whether a request may use free models, and why it may not begin for its credits.

        Raises:
            RateLimited: It comes too often, whatever its credits are.
        """
        claim = case.claim
        limited = claim.free or claim.rate is not None
        may_use_free = limited and free.room(case, self._clock.now())
        return may_use_free, decide.refusal(case)

    def _begin(self, case: Case, *, may_use_free: bool) -> Admitted:
        self._room(len(self._holds) + 1)
        account, claim = case.account, case.claim
        hold = Hold(
            account,
            claim,
            keys=[key for key, _ in case.keys if case.counts(key)],
            nano=case.weight_nano,
            credits_nano=case.weight_nano if case.takes_credits else 0,
            free=may_use_free and free.is_gated(account, claim),
            expires=case.now + self._rules.hold_seconds,
        )
        free.take(case, may_use_free=may_use_free)
        account.in_flight.begin(claim.estimate_nano)
        account.held_nano += hold.credits_nano
        for key in hold.keys:
            key.held_nano += hold.nano
        account.free_held += hold.free
        self._holds[claim.generation_id] = hold
        return Admitted(may_use_free, decide.spendable_nano(case))

    def _end(self, hold: Hold, actual_nano: int) -> None:
        account, claim = hold.account, hold.claim
        now, window = self._clock.monotonic(), self._rules.settlement_seconds
        account.in_flight.end(claim.estimate_nano, actual_nano, now, window)
        account.held_nano -= hold.credits_nano
        for key in hold.keys:
            key.held_nano -= hold.nano
        account.free_held -= hold.free
        self._wake(claim.account_id)

    def _expire(self) -> None:
        """End the oldest holds if their requests never did: a bug, but none that locks credits."""
        now = self._clock.monotonic()
        while self._holds:
            oldest = next(iter(self._holds.values()))
            if oldest.expires > now:
                return
            _log.error("hold_expired", generation=oldest.claim.generation_id)
            self.release(oldest.claim.generation_id)

    def _error(self, case: Case, refused: Refusal) -> TollhouseError:
        caps = decide.caps(case, refused)
        return refusals.payment_required(refused, caps, self._rules.source_prefix)

    # Waiting

    async def _account(self, claim: Claim) -> AccountState:
        self._look_at_day(claim.now.date())
        keys = (claim.key_hash,)
        if claim.payer_hash is not None:
            keys = (claim.key_hash, claim.payer_hash)
        known = self._roster.known(claim.account_id, *keys)
        return known or await self._roster.fresh(claim.account_id, *keys)

    def _look_at_day(self, day: date) -> None:
        """Have every account read again once the clock was set back: earlier days count, too."""
        if day < self._today:
            day = self._clock.now().date()  # a request from before midnight is no earlier clock
            if day < self._today:
                self._roster.all_stale()
        self._today = day

    def _is_behind_others(self, case: Case) -> bool:
        """Tell whether a request would take what others of its account wait for."""
        wanted = decide.wanted(case)
        turns = self._queues[case.claim.account_id]
        return any(turn.awaits in wanted if turn.awaits else wanted for turn in turns)

    async def _queued(self, claim: Claim) -> Admitted:
        """Wait in the account's queue for what others hold."""
        deadline = self._clock.monotonic() + self._rules.wait_seconds
        queue = self._queues.setdefault(claim.account_id, deque())
        turn = _Turn()
        queue.append(turn)
        try:
            while True:
                turn.clear()
                case = self._case(await self._account(claim), claim)
                (may_use_free, refused), left = self._verdict(case), deadline - case.now
                if refused is None and (queue[0] is turn or left <= 0):
                    return self._begin(case, may_use_free=may_use_free)
                if refused is not None and (refused.retry_after is None or left <= 0):
                    raise self._error(case, refused)
                turn.awaits = None if refused is None else decide.awaited(claim, refused)
                # Only the first can begin; it wakes the next one when it leaves.
                change = case.account.in_flight.next_change(case.now) if queue[0] is turn else None
                pause = left if change is None else min(left, change - case.now)
                await happens_within(turn, pause)
        finally:
            queue.remove(turn)
            if queue:
                queue[0].set()
            else:
                del self._queues[claim.account_id]

    def _wake(self, account_id: str) -> None:
        queue = self._queues.get(account_id)
        if queue:
            queue[0].set()
