"""Use cases of batches that a caller can see: submit, look, list, cancel, delete.

    submit:  upload noted ──> items stored ──> one transaction: checks, batch, chunks, reservation
                              (blobs)          (or nothing: what was stored is removed)

A submit and a deletion have more than one transaction, since blobs have none: they open their own.
All else takes the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from tollhouse.batches import policy, repository
from tollhouse.batches.books import folder_of, remove_blobs
from tollhouse.batches.types import Batch, BatchFilter, Status
from tollhouse.kernel.errors import (
    Conflict,
    Gone,
    Invalid,
    NotFound,
    TollhouseError,
    Unavailable,
)
from tollhouse.storage.blobs.port import BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from tollhouse.accounting.types import Attribution
    from tollhouse.batches.context import Context
    from tollhouse.batches.ingest.receiver import Received, Receiver
    from tollhouse.batches.types import Part
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.types import Dialect
    from tollhouse.inference.types import Endpoint as Offer
    from tollhouse.storage.transaction import Read, Write

_NO_SUCH = "No such batch."
_log = structlog.get_logger(__name__)


class BatchesUnavailable(TollhouseError):
    """Items cannot be stored, or what was stored cannot be removed."""

    kind = "upstream"
    code = "provider_unavailable"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who submits a batch."""

    subject: Subject
    attribution: Attribution
    idempotency_key: str | None = None
    """Submitting the same again under the same key changes nothing."""


@dataclass(frozen=True, slots=True)
class Market:
    """What may be asked: the models, and what their providers speak."""

    catalog: Catalog
    spoken: Callable[[Offer], Collection[Dialect]]


class BatchService:
    """Batches of workspaces."""

    def __init__(
        self,
        context: Context,
        receiver: Receiver,
        market: Market,
        *,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Take what the use cases need.

        Args:
            context: What everything of batches uses.
            receiver: Stores items as they come.
            market: What may be asked.
            settled: Brings the books up to date, before they are asked whether a batch is covered.
        """
        self._database = context.database
        self._blobs = context.blobs
        self._accounting = context.accounting
        self._doorbell = context.doorbell
        self._rules = context.rules
        self._clock = context.clock
        self._ids = context.ids
        self._receiver = receiver
        self._market = market
        self._settled = settled

    # Submitting

    async def submit(self, sender: Sender, pieces: AsyncIterator[bytes]) -> Batch:
        """Take a batch; when this returns, it is durable and will be run.

        Args:
            sender: Who submits it.
            pieces: Its body, as it comes.

        Returns:
            The batch as it was submitted: an earlier one where its idempotency key was used before
            for the same body.

        Raises:
            Invalid: It is no batch, or names a model or providers that cannot run it.
            PayloadTooLarge: It is larger than a batch may be.
            Unprocessable: Its ids, its model's variant or its length break a rule.
            Forbidden: A policy allows none of those who could run it.
            PaymentRequired: It may cost more than there is.
            RateLimited: The account submitted too many, or has too many open.
            Conflict: Its idempotency key was used before for another body.
            BatchesUnavailable: Its items cannot be stored now.
        """
        subject = sender.subject
        if sender.idempotency_key is None:
            # With one the answer may be an earlier batch, which no limit stands against.
            async with self._database.reading() as read:
                await self._check_limits(read, subject.account_id)
        batch_id = f"batch_{self._ids.uuid().replace('-', '')}"
        async with self._database.writing() as write:
            await repository.begin_upload(write, batch_id, self._clock.now())
        try:
            received = await self._receiver.receive(pieces, folder_of(batch_id))
            batch = await self._create(sender, batch_id, received)
        except BlobsUnavailable as error:
            await self._abandon(batch_id)
            _log.error("batch_not_stored", batch=batch_id, error=error.reason)
            message = "The batch's items cannot be stored now; try again later."
            raise BatchesUnavailable(message) from error
        except BaseException:
            await self._abandon(batch_id)
            raise
        if batch.id != batch_id:
            await self._abandon(batch_id)
        self._doorbell.ring(batch.id)
        return batch

    async def _create(self, sender: Sender, batch_id: str, received: Received) -> Batch:
        """Check what was received, and make it a batch; or return the one that it was before."""
        subject, asked, now = sender.subject, received.submission, self._clock.now()
        if asked.callback_url is not None:
            message = "callback_url: webhooks are not offered; leave it out and poll the batch."
            raise Invalid(message)
        model = policy.find_model(self._market.catalog, asked.model)
        wish = policy.preferences(asked.provider)
        offers = policy.candidates(
            model, asked.endpoint, wish, subject.policies, self._market.spoken
        )
        estimate = policy.estimate_nano(received.demand, asked.endpoint, offers, self._rules)
        batch = Batch(
            id=batch_id,
            account_id=subject.account_id,
            workspace_id=subject.workspace_id,
            key_hash=subject.key_hash,
            endpoint=asked.endpoint,
            model=asked.model,
            wish=asked.provider,
            status=Status.VALIDATING,
            created_at=now,
            expires_at=now + self._rules.window,
            total=sum(chunk.lines for chunk in received.chunks),
            attribution=sender.attribution,
            digest=received.digest,
            idempotency_key=sender.idempotency_key,
            payer_hash=subject.payer_hash,
        )
        await self._settled()
        async with self._database.writing() as write:
            # It keeps other batches of the account out, too, until this one is there.
            await self._accounting.alone_with(write, subject.account_id)
            earlier = await self._earlier(write, subject, batch)
            if earlier is not None:
                return earlier
            await self._check_limits(write, subject.account_id)
            if not await repository.end_upload(write, batch_id):
                message = "The batch took too long to arrive."
                raise Unavailable(message)
            await self._accounting.reserve(
                write,
                batch_id,
                subject.account_id,
                subject.key_hash,
                estimate,
                payer_hash=subject.payer_hash,
            )
            await repository.add(write, batch, received.chunks)
        return batch

    async def _earlier(self, read: Read, subject: Subject, batch: Batch) -> Batch | None:
        """Return the batch that has this one's idempotency key, as it was submitted."""
        if batch.idempotency_key is None:
            return None
        earlier = await repository.with_idempotency_key(
            read, batch.workspace_id, batch.idempotency_key
        )
        if earlier is None:
            return None
        # Who is no intern sees all of its workspace, where this one was found.
        seen = subject.intern_id is None or await repository.get(
            read, earlier.id, policy.sight(subject)
        )
        if not seen or earlier.digest != batch.digest:
            message = "The idempotency key was used before for another batch."
            raise Conflict(message)
        return replace(
            batch, id=earlier.id, created_at=earlier.created_at, expires_at=earlier.expires_at
        )

    async def _check_limits(self, read: Read, account_id: str) -> None:
        now = self._clock.now()
        since = policy.rate_window(now)
        count, first = await repository.submitted_since(read, account_id, since)
        policy.check_rate(self._rules, count, first, now)
        policy.check_open(self._rules, await repository.count_open(read, account_id), now)

    async def _abandon(self, batch_id: str) -> None:
        """Forget an upload; blobs of it that cannot be removed now are left to the sweeper.

        One that is a batch already stays: its commit succeeded, though whoever waited for it was
        cancelled, or the answer was lost.
        """
        async with self._database.writing() as write:
            if not await repository.give_up_upload(write, batch_id):
                return
        if await remove_blobs(self._blobs, batch_id):
            async with self._database.writing() as write:
                await repository.forget_upload(write, batch_id)

    # Looking

    async def get(self, read: Read, subject: Subject, batch_id: str) -> Batch:
        """Return a batch of the key's workspace; an intern's own key has those of its intern.

        Raises:
            NotFound: There is none.
            Gone: It is deleted, or past its retention.
        """
        found = await repository.get(read, batch_id, policy.sight(subject))
        if found is None:
            raise NotFound(_NO_SUCH)
        if not policy.is_kept(found, self._rules, self._clock.now()):
            message = "The batch was deleted, or is past its retention."
            raise Gone(message)
        return found

    async def is_withheld(self, read: Read, batch: Batch) -> bool:
        """Tell whether a batch keeps its results until its charge is covered."""
        if batch.released or batch.status is Status.FAILED:
            return False
        return not await self._accounting.covers(read, batch.account_id)

    async def release(self, write: Write, batch: Batch) -> None:
        """Let the results of a batch be read for ever: its charge is covered."""
        await repository.release(write, batch.id)

    async def parts(self, read: Read, batch: Batch) -> Sequence[Part]:
        """Return where the results of a batch are: those that there are so far, where it runs."""
        return await repository.parts(read, batch.id)

    async def page(
        self, read: Read, subject: Subject, wanted: BatchFilter, after: str | None, limit: int
    ) -> tuple[Sequence[Batch], bool]:
        """Return batches that a key may know of, newest first, and whether there are more.

        Args:
            read: The transaction.
            subject: Whose key asks.
            wanted: Which of them.
            after: The id of the last one of the page before.
            limit: How many at most.

        Raises:
            Invalid: `after` is none of them.
        """
        sight, last = policy.sight(subject), None
        if after is not None:
            last = await repository.get(read, after, sight)
            if last is None:
                message = "after: no such batch."
                raise Invalid(message)
        kept = replace(wanted, kept_since=self._clock.now() - self._rules.retention)
        found = await repository.page(read, sight, kept, last, limit + 1)
        return found[:limit], len(found) > limit

    # Ending

    async def cancel(self, write: Write, subject: Subject, batch_id: str) -> Batch:
        """Begin no more items of a batch; what is finished is kept and charged.

        Returns:
            The batch, which may still be `cancelling`.

        Raises:
            NotFound: There is none.
            Gone: It is deleted, or past its retention.
            Conflict: It has ended, or is about to.
        """
        found = await self.get(write, subject, batch_id)
        if found.status is Status.CANCELLING:
            return found
        moved = await repository.move(write, batch_id, Status.CANCELLING)
        if moved is None:
            now_is = (await self.get(write, subject, batch_id)).status
            raise Conflict(f"The batch is {now_is}; it cannot be cancelled any more.")
        write.after_commit(lambda: self._doorbell.ring(batch_id))
        return moved

    async def delete(self, subject: Subject, batch_id: str) -> Batch:
        """Delete a batch that has ended, with its items and results; what was booked stays.

        Raises:
            NotFound: There is none, or it is deleted already, or past its retention.
            Conflict: It has not ended.
            BatchesUnavailable: It is deleted, but its blobs could not be removed; that is tried
                again until it succeeds.
        """
        async with self._database.writing() as write:
            try:
                found = await self.get(write, subject, batch_id)
            except Gone as gone_before:
                # The public gateway's clients know no 410 of a deletion.
                raise NotFound(gone_before.message) from None
            gone = await repository.mark_deleted(write, batch_id, self._clock.now())
            if gone is None:
                message = f"The batch is {found.status}; cancel it first, or wait for its end."
                raise Conflict(message)
        if not await remove_blobs(self._blobs, batch_id):
            message = "The batch is deleted; its files are removed as soon as that is possible."
            raise BatchesUnavailable(message)
        async with self._database.writing() as write:
            await repository.mark_purged(write, batch_id, self._clock.now())
        return gone
