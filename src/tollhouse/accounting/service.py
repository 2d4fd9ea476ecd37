"""Use cases of money: credits, a key's counters, reservations, generations."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING

from tollhouse.accounting import budget_rows as rows
from tollhouse.accounting import policy, repository
from tollhouse.accounting.admission.rules import (
    held_by_requests,
    limits_shown,
    reservation_refusal,
)
from tollhouse.accounting.budgets import write_off
from tollhouse.accounting.leases import KEY
from tollhouse.accounting.limits import AccountingRules, Budget, key_status
from tollhouse.accounting.loader import account_of, requests_since
from tollhouse.accounting.settlement.joint_booking import book
from tollhouse.accounting.shared_limits import BudgetService
from tollhouse.accounting.types import BudgetScope, KeyLimit
from tollhouse.accounting.uses import uses
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import INSTALLATION, AuditAction
from tollhouse.kernel.errors import Conflict, Invalid, NotFound
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.budgets import Holder
    from tollhouse.accounting.limits import KeyStatus
    from tollhouse.accounting.types import (
        CostState,
        Credits,
        FreeRequests,
        GenerationRecord,
        Posting,
        PostingKind,
        Reservation,
    )
    from tollhouse.identity.types import Subject
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Read, Write

_MOST_UNSETTLED = 1_000


class AccountingService:
    """Credits, counters and generations."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        *,
        rules: AccountingRules | None = None,
    ) -> None:
        """Keep what the use cases need.

        They notify of `Topic.ACCOUNT` where an account's money or limits change; of `ACCOUNT_HINT`
        where as much is left to spend as was known, as after charges within a reservation: nobody
        has to wait until that is known.
        """
        self._audit = AuditService(clock)
        self.budgets = BudgetService(clock, ids, self._audit)
        """Those of workspaces, people and end users."""
        self._clock = clock
        self._ids = ids
        self._rules = AccountingRules() if rules is None else rules

    async def add_credits(  # noqa: PLR0913 - each is a fact of the posting
        self,
        write: Write,
        account_id: str,
        kind: PostingKind,
        amount_nano: int,
        *,
        generation_id: str | None = None,
        idempotency_key: str | None = None,
        note: str | None = None,
        actor: str | None = None,
    ) -> Posting:
        """Bring credits into an account that exists, or take them out: see `policy.credit_posting`.

        Posting again with the same idempotency key changes nothing, and returns the earlier one.
        Without an actor, who asked for it, nothing is written to the audit log.

        Raises:
            Conflict: The key was used before for something else, or more would be refunded than
                was purchased and kept.
            Invalid: The facts make no posting, the generation is not one of the account, or the
                account would hold more than can be counted.
        """
        posting = policy.credit_posting(
            self._ids.uuid(),
            account_id,
            kind,
            amount_nano,
            self._clock.now(),
            generation_id=generation_id,
            idempotency_key=idempotency_key,
            note=note,
        )
        await repository.lock_credits(write, account_id)
        earlier = await repository.posting_with_key(write, account_id, idempotency_key)
        if earlier is not None:
            if not policy.is_same_posting(earlier, posting):
                raise Conflict(
                    "The idempotency key was used before with another amount, kind or generation."
                )
            return earlier
        if generation_id is not None:
            named = await repository.get_generation(write, account_id, generation_id)
            if named is None:
                raise Invalid("generation_id: no such generation in this account.")
        policy.check_credits((await account_of(write, account_id)).credits, posting)
        await repository.add_credit(write, posting, policy.credits_change(posting))
        await rows.credits_changed(write, account_id, policy.balance_change(posting))
        if actor is not None:
            facts = {
                "kind": kind,
                "amount_nano": policy.balance_change(posting),
                "generation_id": generation_id,
                "note": note,
            }
            await self._audit.record_change(
                write, account_id, AuditAction.CREDITS_POSTED, actor, posting.id, new=facts
            )
        write.notify(Topic.ACCOUNT, account_id)
        return posting

    async def lock_credits(self, write: Write, account_id: str) -> None:
        """Keep others from reserving or bringing in credits until this transaction ends."""
        await repository.lock_credits(write, account_id)

    async def reserve(self, write: Write, wanted: Reservation) -> None:
        """Set credits aside for as long as something lasts: a batch.

        They lower the account's available balance and what is left of the limits of the workspace,
        of who made the key, of the key and of its payer until they are lowered or ended. Charges on
        their way to the books are not seen: have the settler bring them there first. Whoever also
        books or ends reservations in the same transaction reserves first. Others that reserve of
        this account wait for its end. An amount of 0 is refused by a negative balance alone.

        Raises:
            PaymentRequired: The credits, or a limit, do not suffice.
            Invalid: More would be reserved than can be counted.
        """
        account_id, key_hashes = wanted.account_id, wanted.key_hashes
        amount_nano, with_own_nano = wanted.amount_nano, wanted.with_own_nano
        await repository.lock_credits(write, account_id)
        if await repository.get_reservation(write, wanted.id) is not None:
            return  # with what other processes gave back for it
        account = await account_of(write, account_id)
        shared = await self.budgets.reserved_of(write, account_id, key_hashes, wanted.workspace_id)
        statuses = await self.key_statuses(write, key_hashes)
        own = [(each, statuses[each].own_budget) for each in key_hashes]
        limited = [
            *(budget for _, budget in shared),
            *(replace(budget, owner_id=key) for key, budget in own if budget is not None),
            account.fill(Budget(BudgetScope.ACCOUNT)),
        ]
        refused = reservation_refusal(amount_nano, limited, wanted.key_hash, with_own_nano)
        if refused is None:
            if account.reserved_nano + max(amount_nano, with_own_nano) > MAX_NANO:
                raise Invalid("More credits would be reserved than can be counted.")
            if not await rows.set_aside(write, wanted, takes_credits=account.type.needs_credits):
                refused = held_by_requests(amount_nano, limited[-1])
        if refused is not None:
            limits = limits_shown(limited, wanted.key_hash, refused)
            raise refused.payment_required(limits, self._rules.source_prefix)
        write.notify(Topic.ACCOUNT, account_id)

    async def lower_reservation(
        self, write: Write, reservation_id: str, by_nano: int, with_own_by_nano: int | None = None
    ) -> None:
        """Give back a part of what is reserved, at most what is left; one that has ended stays so.

        Book before that in the same transaction: all take their locks in one order then.
        """
        own = by_nano if with_own_by_nano is None else with_own_by_nano
        held = await repository.get_reservation(write, reservation_id, lock=True)
        if held is None:
            return
        less, own = min(by_nano, held.amount_nano), min(own, held.with_own_nano)
        await repository.lower_reservation(write, reservation_id, less, own)
        await rows.reserved_changed(write, held, -less, -own)
        # Where nothing is left, more may have been charged than was reserved.
        is_hint = held.amount_nano > less
        write.notify(Topic.ACCOUNT_HINT if is_hint else Topic.ACCOUNT, held.account_id)

    async def end_reservation(self, write: Write, reservation_id: str) -> None:
        """Give back all that is left of what is reserved, after booking; harmless twice."""
        ended = await repository.end_reservation(write, reservation_id)
        if ended is not None:
            await rows.reserved_changed(write, ended, -ended.amount_nano, -ended.with_own_nano)
            write.notify(Topic.ACCOUNT, ended.account_id)

    async def book(self, write: Write, records: Collection[GenerationRecord]) -> Collection[str]:
        """Book some hundred generations at most, in a transaction that changes other things too.

        For what has a reservation, which the caller lowers in the same transaction; a request's
        charge goes through the journal. Those already booked change nothing; the ids of the others
        are returned. After an exception the transaction is lost: see `joint_booking.book`.
        """
        new = await book(write, records)
        for account_id in {record.account_id for record in records if record.id in new}:
            write.notify(Topic.ACCOUNT_HINT, account_id)
        return new

    async def is_covered(self, read: Read, account_id: str) -> bool:
        """Tell whether an account pays afterwards, or its balance is not negative."""
        account = await account_of(read, account_id)
        return not account.type.needs_credits or account.credits.balance_nano >= 0

    async def credits(self, read: Read, account_id: str) -> Credits:
        """Return an account's money."""
        return (await account_of(read, account_id)).credits

    async def set_key_limit(
        self, write: Write, account_id: str, key_hash: str, limit: KeyLimit
    ) -> None:
        """Let a key use as much as this; in force before the answer.

        A deleted key keeps its limit: the requests that it began still run under it, and nobody
        can read or change it any more.
        """
        await repository.save_key_limit(write, key_hash, limit, self._clock.now())
        await rows.limit_changed(write, KEY, key_hash)
        write.notify(Topic.ACCOUNT, account_id)

    def key_moved(self, write: Write, account_id: str) -> None:
        """Learn that a key has another workspace, whose limits hold from then on."""
        write.notify(Topic.ACCOUNT, account_id)

    async def write_off(
        self, write: Write, holder: str, *, return_rights: bool, actor: str
    ) -> Holder | None:
        """Write a process off that spends budgets with others; return it, or None if unknown."""
        found = await write_off(write, holder, return_rights=return_rights)
        if found is not None:
            facts = {"machine": found.machine, "return_rights": return_rights}
            action = AuditAction.HOLDER_WRITTEN_OFF
            await self._audit.record_change(write, INSTALLATION, action, actor, holder, new=facts)
        return found

    async def key_status(self, read: Read, key_hash: str) -> KeyStatus:
        """Return a key's counters beside what it may use."""
        return (await self.key_statuses(read, [key_hash]))[key_hash]

    async def key_statuses(self, read: Read, key_hashes: Collection[str]) -> dict[str, KeyStatus]:
        """Return the counters of keys, zeros where one was never used, beside what each may use."""
        now = self._clock.now()
        today = now.astimezone(UTC).date()
        limits = await repository.key_limits_of(read, key_hashes)
        first = policy.first_day_of_windows(now)
        found: dict[str, KeyStatus] = {}
        for key_hash, use in (await uses(read, KEY, key_hashes, first, whole=True)).items():
            limit = limits.get(key_hash, KeyLimit())
            usage = policy.key_usage(use.total, use.days, now, use.last_used_at)
            reserved = use.held_for_batches(include_byok=limit.include_byok)
            found[key_hash] = key_status(limit, usage, today, reserved)
        return found

    async def free_requests(self, read: Read, account_id: str) -> FreeRequests:
        """Return what an account asked of free models in the current UTC day."""
        today = self._clock.now().date()
        days, _ = await requests_since(read, account_id, today)
        owned = await self.credits(read, account_id)
        # With the clock set back, later days count as well: see `policy.key_usage`.
        return policy.free_requests(owned, sum(days.values()), self._rules)

    async def generation(
        self, read: Read, subject: Subject, generation_id: str
    ) -> GenerationRecord:
        """Return a generation that a key may read, or raise `NotFound`."""
        found = await repository.get_generation(read, subject.account_id, generation_id)
        if found is None or not policy.may_read_generation(subject, found):
            raise NotFound("No such generation.")
        return found

    async def unsettled(
        self, read: Read, state: CostState, account_id: str | None
    ) -> Sequence[GenerationRecord]:
        """Return the latest of those whose cost is unknown, or that a kill interrupted.

        Without those that an adjustment names; of all accounts for None.
        """
        return await repository.unsettled(read, state, account_id, _MOST_UNSETTLED)
