"""Use cases of money that a caller can see: credits, a key's counters, generations."""

from __future__ import annotations

from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING

from tollhouse.accounting import repository
from tollhouse.accounting.admission.refusals import payment_required
from tollhouse.accounting.admission.reservation_rules import (
    AvailableFunds,
    current_limits,
    key_funds,
    refusal,
)
from tollhouse.accounting.budgets import key_standing
from tollhouse.accounting.policy import (
    change_of_credits,
    check_credits,
    credit_posting,
    first_day_needed,
    free_requests,
    gained,
    key_usage,
    same_credit,
    sees_generation,
)
from tollhouse.accounting.rules import AccountingRules
from tollhouse.accounting.settlement.transaction import book
from tollhouse.accounting.types import KeyLimit, Reservation, Spend
from tollhouse.audit.changes import entry_of_change
from tollhouse.audit.service import AuditService
from tollhouse.audit.types import AuditAction
from tollhouse.kernel.errors import Conflict, Invalid, NotFound
from tollhouse.kernel.money import MAX_NANO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

    from tollhouse.accounting.types import (
        Credits,
        FreeRequests,
        GenerationRecord,
        KeyStanding,
        KeyUsage,
        Posting,
        PostingKind,
    )
    from tollhouse.identity.types import Subject
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.transaction import Read, Write

_MOST_UNKNOWN = 1_000


def _nothing(_account_id: str) -> None:
    """Nobody remembers anything of an account."""


class AccountingService:
    """Credits, counters and generations."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        *,
        rules: AccountingRules | None = None,
        invalidate: Callable[[str], None] = _nothing,
        refresh: Callable[[str], None] | None = None,
    ) -> None:
        """Take what the use cases need.

        Args:
            clock: The time.
            ids: Names for what is made.
            rules: The operator's limits; the defaults unless given.
            invalidate: Called with an account's id once a change to its money or limits is durable;
                must not raise.
            refresh: The same for a change that leaves as much to spend as was known: charges
                within a reservation. Nobody has to wait until it is known. Unless given,
                `invalidate` is called.
        """
        self._audit = AuditService(clock)
        self._clock = clock
        self._ids = ids
        self._rules = AccountingRules() if rules is None else rules
        self._invalidate = invalidate
        self._refresh = invalidate if refresh is None else refresh

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
        """Bring credits into an account, or take them out of it.

        Args:
            write: The transaction.
            account_id: An account that exists.
            kind: A purchase (they alone count towards the paid tier), a refund of purchases, a
                grant, or an adjustment.
            amount_nano: Nano-credits, positive; a negative adjustment takes them.
            generation_id: The generation that an adjustment is about.
            idempotency_key: Posting again with the same key changes nothing.
            note: A remark for the statement; an adjustment needs one.
            actor: Who asked for it, for the record; None where nobody did.

        Returns:
            The posting; the earlier one where the key was used before.

        Raises:
            Conflict: The key was used before for something else, or more would be refunded than
                was purchased and kept.
            Invalid: The facts make no posting, the generation is not one of the account, or the
                account would hold more than can be counted.
        """
        posting = credit_posting(
            self._ids.uuid(),
            account_id,
            kind,
            amount_nano,
            self._clock.now(),
            generation_id=generation_id,
            idempotency_key=idempotency_key,
            note=note,
        )
        await repository.alone_with(write, account_id)
        earlier = await repository.posting_with_key(write, account_id, idempotency_key)
        if earlier is not None:
            return _the_same(earlier, posting)
        await self._check_generation(write, posting)
        check_credits(await repository.credits_of(write, account_id), posting)
        await repository.add_credit(write, posting, change_of_credits(posting))
        if actor is not None:
            await self._record(write, posting, actor)
        write.after_commit(partial(self._invalidate, account_id))
        return posting

    async def _record(self, write: Write, posting: Posting, actor: str) -> None:
        told = {
            "kind": posting.kind,
            "amount_nano": gained(posting),
            "generation_id": posting.generation_id,
            "note": posting.note,
        }
        entry = entry_of_change(AuditAction.CREDITS_POSTED, actor, posting.id, new=told)
        await self._audit.record(write, posting.account_id, [entry])

    async def _check_generation(self, read: Read, posting: Posting) -> None:
        wanted = posting.generation_id
        if wanted is None:
            return
        if await repository.get_generation(read, posting.account_id, wanted) is None:
            message = "generation_id: no such generation in this account."
            raise Invalid(message)

    async def alone_with(self, write: Write, account_id: str) -> None:
        """Keep others from reserving or bringing in credits until this transaction ends.

        Whoever counts what an account has, before it reserves, is sure of the count then.
        """
        await repository.alone_with(write, account_id)

    async def reserve(  # noqa: PLR0913 - each is a fact of the reservation
        self,
        write: Write,
        reservation_id: str,
        account_id: str,
        key_hash: str,
        amount_nano: int,
        *,
        payer_hash: str | None = None,
    ) -> None:
        """Set credits aside for as long as something lasts: a batch.

        They lower the account's available balance and what is left of the limits of the key and of
        its payer until they are lowered or ended. Charges on their way to the books are not seen:
        have the settler bring them there first. Whoever also books or ends reservations in the same
        transaction reserves first.

        Args:
            write: The transaction. Others that reserve of this account wait for its end.
            reservation_id: A new id.
            account_id: An account that exists.
            key_hash: The key whose limit it counts towards.
            amount_nano: Nano-credits, 0 or more. Nothing is refused by a negative balance alone.
            payer_hash: The key that answers for it, if another one does: its limit counts, too.

        Raises:
            PaymentRequired: The credits, or a key's limit, do not suffice.
            Invalid: More would be reserved than can be counted.
        """
        await repository.alone_with(write, account_id)
        funds = await self._funds(write, account_id, key_hash, payer_hash)
        refused = refusal(amount_nano, funds)
        if refused is not None:
            raise payment_required(
                refused, current_limits(funds, refused), self._rules.source_prefix
            )
        if funds.reserved_nano + amount_nano > MAX_NANO:
            message = "More credits would be reserved than can be counted."
            raise Invalid(message)
        await repository.add_reservation(
            write,
            Reservation(
                reservation_id, account_id, key_hash, amount_nano, self._clock.now(), payer_hash
            ),
        )
        write.after_commit(partial(self._invalidate, account_id))

    async def _funds(
        self, read: Read, account_id: str, key_hash: str, payer_hash: str | None
    ) -> AvailableFunds:
        standing = await self.key_standing(read, key_hash)
        payer = None if payer_hash is None else await self.key_standing(read, payer_hash)
        kind = await repository.account_type(read, account_id)
        return AvailableFunds(
            credits=await repository.credits_of(read, account_id),
            needs_credits=kind.needs_credits,
            reserved_nano=await repository.reserved_of_account(read, account_id),
            key=key_funds(standing),
            payer=None if payer is None else key_funds(payer),
        )

    async def lower_reservation(self, write: Write, reservation_id: str, by_nano: int) -> None:
        """Give back a part of what is reserved; one that has ended stays so.

        A transaction that books, too, books first: all take their locks in one order then.

        Args:
            write: The transaction.
            reservation_id: The reservation.
            by_nano: Nano-credits, 0 or more; no more than is left is given back.
        """
        lowered = await repository.lower_reservation(write, reservation_id, by_nano)
        if lowered is None:
            return
        account_id, left_nano = lowered
        # Where nothing is left, more may have been charged than was reserved.
        write.after_commit(partial(self._refresh if left_nano else self._invalidate, account_id))

    async def end_reservation(self, write: Write, reservation_id: str) -> None:
        """Give back all that is left of what is reserved; harmless twice.

        A transaction that books, too, books first.
        """
        account_id = await repository.end_reservation(write, reservation_id)
        if account_id is not None:
            write.after_commit(partial(self._invalidate, account_id))

    async def book(self, write: Write, records: Collection[GenerationRecord]) -> Collection[str]:
        """Book generations in a transaction that changes other things with them.

        For what has a reservation, which the caller lowers in the same transaction; a request's
        charge goes through the journal.

        Args:
            write: The transaction.
            records: Some hundred at most. Those already booked change nothing.

        Returns:
            The ids of those that were not booked before.

        Raises:
            Exception: One of them cannot be stored, or the database is not there; the transaction
                is lost.
        """
        new = await book(write, records)
        for account_id in {record.account_id for record in records if record.id in new}:
            write.after_commit(partial(self._refresh, account_id))
        return new

    async def covers(self, read: Read, account_id: str) -> bool:
        """Tell whether what was charged to an account is covered.

        It is where the balance is not negative, and where the account pays afterwards.
        """
        kind = await repository.account_type(read, account_id)
        owned = await repository.credits_of(read, account_id)
        return not kind.needs_credits or owned.balance_nano >= 0

    async def credits(self, read: Read, account_id: str) -> Credits:
        """Return an account's money."""
        return await repository.credits_of(read, account_id)

    async def key_usage(self, read: Read, key_hash: str) -> KeyUsage:
        """Return a key's counters for all time and the current UTC day, week and month."""
        return (await self.key_usages(read, [key_hash]))[key_hash]

    async def key_usages(self, read: Read, key_hashes: Collection[str]) -> dict[str, KeyUsage]:
        """Return the counters of several keys; zeros for those that were never used."""
        return await self._key_usages(read, key_hashes, self._clock.now())

    async def _key_usages(
        self, read: Read, key_hashes: Collection[str], now: datetime
    ) -> dict[str, KeyUsage]:
        totals = await repository.key_totals_of(read, key_hashes)
        days = await repository.key_days_of(read, key_hashes, first_day_needed(now))
        usages: dict[str, KeyUsage] = {}
        for key_hash in key_hashes:
            total, last_used_at = totals.get(key_hash, (Spend(), None))
            usages[key_hash] = key_usage(total, days.get(key_hash, {}), now, last_used_at)
        return usages

    async def key_limit(self, read: Read, key_hash: str) -> KeyLimit:
        """Return what a key may use."""
        return (await self.key_limits(read, [key_hash]))[key_hash]

    async def key_limits(self, read: Read, key_hashes: Collection[str]) -> dict[str, KeyLimit]:
        """Return what each of several keys may use."""
        found = await repository.key_limits_of(read, key_hashes)
        return {key_hash: found.get(key_hash, KeyLimit()) for key_hash in key_hashes}

    async def set_key_limit(
        self, write: Write, account_id: str, key_hash: str, limit: KeyLimit
    ) -> None:
        """Let a key use as much as this; in force before the answer.

        A deleted key keeps its limit: the requests that it began still run under it, and nobody
        can read or change it any more.

        Args:
            write: The transaction.
            account_id: The key's account.
            key_hash: A key that exists.
            limit: The limit, not above `MAX_NANO`, in place of the one before.
        """
        await repository.save_key_limit(write, key_hash, limit, self._clock.now())
        write.after_commit(lambda: self._invalidate(account_id))

    async def key_standing(self, read: Read, key_hash: str) -> KeyStanding:
        """Return a key's counters beside what it may use."""
        return (await self.key_standings(read, [key_hash]))[key_hash]

    async def key_standings(
        self, read: Read, key_hashes: Collection[str]
    ) -> dict[str, KeyStanding]:
        """Return the counters of several keys beside what each may use."""
        now = self._clock.now()
        usages = await self._key_usages(read, key_hashes, now)
        limits = await self.key_limits(read, key_hashes)
        reserved = await repository.reserved_of_keys(read, key_hashes)
        today = now.astimezone(UTC).date()
        return {
            each: key_standing(limits[each], usages[each], today, reserved.get(each, 0))
            for each in key_hashes
        }

    async def free_requests(self, read: Read, account_id: str) -> FreeRequests:
        """Return what an account asked of free models in the current UTC day."""
        today = self._clock.now().date()
        days = await repository.free_requests_since(read, account_id, today)
        owned = await repository.credits_of(read, account_id)
        # With the clock set back, later days count as well: see `policy.key_usage`.
        return free_requests(owned, sum(days.values()), self._rules)

    async def generation(
        self, read: Read, subject: Subject, generation_id: str
    ) -> GenerationRecord:
        """Return a generation that a key may read.

        Raises:
            NotFound: There is none.
        """
        found = await repository.get_generation(read, subject.account_id, generation_id)
        if found is None or not sees_generation(subject, found):
            message = "No such generation."
            raise NotFound(message)
        return found

    async def unknown_costs(self, read: Read, account_id: str | None) -> Sequence[GenerationRecord]:
        """Return the latest generations whose cost nobody knows; of all accounts for None."""
        return await repository.unknown_costs(read, account_id, _MOST_UNKNOWN)


def _the_same(earlier: Posting, asked: Posting) -> Posting:
    """Return the posting that has the key already, if it is what is asked for again."""
    if not same_credit(earlier, asked):
        message = "The idempotency key was used before with another amount, kind or generation."
        raise Conflict(message)
    return earlier
