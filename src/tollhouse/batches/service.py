"""Use cases of batches that a caller can see: submit, look, list, cancel, delete.

    submit:  upload noted ──> items stored ──> one transaction: checks, batch, chunks, reservation
                              (blobs)          (or nothing: what was stored is removed)

A submit and a deletion have more than one transaction, since blobs have none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.types import Reservation
from tollhouse.batches import policy, repository
from tollhouse.batches.chunk_store import BatchContext, folder_of, remove_blobs
from tollhouse.batches.stored_chunks import are_stored
from tollhouse.batches.types import Batch, BatchFilter, BatchStatus, ResultPart
from tollhouse.inference.own_routing import OwnKeyUse
from tollhouse.kernel.errors import Conflict, Gone, Invalid, NotFound, TollhouseError, Unavailable
from tollhouse.kernel.failpoints import failpoint
from tollhouse.storage.blobs import BlobsUnavailable
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence

    from tollhouse.accounting.types import Attribution
    from tollhouse.batches.ingest.receiver import BatchReceiver, ReceivedBatch
    from tollhouse.identity.types import Subject
    from tollhouse.inference.catalog import Catalog
    from tollhouse.inference.types import Dialect, Endpoint
    from tollhouse.storage.database import Read, Write

_NO_SUCH = "No such batch."
_log = structlog.get_logger(__name__)


class BatchesUnavailable(TollhouseError):
    """Items cannot be stored, or what was stored cannot be read or removed."""

    kind = "upstream"
    code = "provider_unavailable"


@dataclass(frozen=True, slots=True)
class Submitter:
    """Who submits a batch."""

    subject: Subject
    attribution: Attribution
    idempotency_key: str | None = None
    """Submitting the same again under the same key changes nothing."""


async def _no_own_keys(_: Subject) -> OwnKeyUse:
    return OwnKeyUse()


@dataclass(frozen=True, slots=True)
class BatchService:
    """Batches of workspaces."""

    context: BatchContext
    receiver: BatchReceiver
    catalog: Catalog
    dialects_of: Callable[[Endpoint], Collection[Dialect]]
    """What the provider of an endpoint speaks."""
    settled: Callable[[], Awaitable[None]]
    """Brings the books up to date, before they are asked whether a batch is covered."""
    reload: Callable[[str, Sequence[str]], Awaitable[None]]
    """Has admission read an account and keys whose credits were reserved."""
    reserve: Callable[[Reservation], Awaitable[None]]
    """Has other processes give back what they need not, where there are any."""
    own_keys_of: Callable[[Subject], Awaitable[OwnKeyUse]] = _no_own_keys
    """The own keys of providers that somebody may use."""
    own_fee: Fraction = Fraction(0)
    """The part of the price that a request costs with them."""

    # Submitting

    async def submit(self, sender: Submitter, pieces: AsyncIterator[bytes]) -> Batch:
        """Take a batch; when this returns it as it was submitted, it is durable and will be run.

        It is an earlier one where its idempotency key was used before for the same body.

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
            async with self.context.database.reading() as read:
                await self._check_limits(read, subject.account_id)
        batch_id = f"batch_{self.context.ids.uuid().replace('-', '')}"
        async with self.context.database.writing() as write:
            await repository.begin_upload(write, batch_id, self.context.clock.now())
        try:
            received = await self.receiver.receive(pieces, folder_of(batch_id))
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
        # Before items run: reading takes ten times as long beside them, and live requests wait.
        await self.reload(subject.account_id, subject.key_hashes)
        self.context.doorbell.ring(batch.id)
        return batch

    async def _create(self, sender: Submitter, batch_id: str, received: ReceivedBatch) -> Batch:
        """Check what was received, and make it a batch; or return the one that it was before."""
        subject, asked, now = sender.subject, received.submission, self.context.clock.now()
        if asked.callback_url is not None:
            message = "callback_url: webhooks are not offered; leave it out and poll the batch."
            raise Invalid(message)
        who = policy.runners(
            policy.find_model(self.catalog, asked.model),
            asked.endpoint,
            policy.preferences(asked.provider),
            subject.policies,
            self.dialects_of,
            await self.own_keys_of(subject),
        )
        estimate = policy.estimate(
            received.demand, asked.endpoint, who, self.context.rules, self.own_fee
        )
        batch = Batch(
            id=batch_id,
            account_id=subject.account_id,
            workspace_id=subject.workspace_id,
            key_hash=subject.key_hash,
            endpoint=asked.endpoint,
            model=asked.model,
            preferences=asked.provider,
            status=BatchStatus.VALIDATING,
            created_at=now,
            expires_at=now + self.context.rules.window,
            total=sum(chunk.lines for chunk in received.chunks),
            attribution=sender.attribution,
            digest=received.digest,
            idempotency_key=sender.idempotency_key,
            payer_hash=subject.payer_hash,
            only_own_keys=not who.shared,
        )
        await self.settled()
        async with self.context.database.reading() as read:
            earlier = await self._earlier(read, subject, batch)
        if earlier is not None:
            return earlier
        reservation = Reservation(
            batch_id,
            subject.account_id,
            subject.key_hash,
            estimate.amount_nano,
            now,
            subject.payer_hash,
            estimate.with_own_nano,
            subject.workspace_id,
        )
        await self.reserve(reservation)
        async with self.context.database.writing() as write:
            # It keeps other batches of the account out, too, until this one is there.
            await self.context.accounting.lock_credits(write, subject.account_id)
            earlier = await self._earlier(write, subject, batch)
            if earlier is not None:
                return earlier
            await self._check_limits(write, subject.account_id)
            if not await repository.end_upload(write, batch_id):
                raise Unavailable("The batch took too long to arrive.")
            await self.context.accounting.reserve(write, reservation)
            await repository.add(write, batch, received.chunks)
        await failpoint("batch.create.after")
        return batch

    async def _earlier(self, read: Read, subject: Subject, batch: Batch) -> Batch | None:
        if batch.idempotency_key is None:
            return None
        earlier = await repository.with_idempotency_key(
            read, batch.workspace_id, batch.idempotency_key
        )
        if earlier is None:
            return None
        # Who is no intern sees all of its workspace, where this one was found.
        seen = subject.intern_id is None or await repository.get(
            read, earlier.id, policy.visibility_of(subject)
        )
        if not seen or earlier.digest != batch.digest:
            raise Conflict("The idempotency key was used before for another batch.")
        return replace(
            batch, id=earlier.id, created_at=earlier.created_at, expires_at=earlier.expires_at
        )

    async def _check_limits(self, read: Read, account_id: str) -> None:
        now = self.context.clock.now()
        since = policy.rate_window(now)
        count, first = await repository.submitted_since(read, account_id, since)
        policy.check_rate(self.context.rules, count, first, now)
        policy.check_open(self.context.rules, await repository.count_open(read, account_id), now)

    async def _abandon(self, batch_id: str) -> None:
        """Forget an upload, unless it is a batch by now though its answer was lost."""
        async with self.context.database.writing() as write:
            if not await repository.give_up_upload(write, batch_id):
                if await repository.get(write, batch_id) is None:
                    await self.context.accounting.end_reservation(write, batch_id)
                return
            await self.context.accounting.end_reservation(write, batch_id)
        if await remove_blobs(self.context.blobs, batch_id):
            async with self.context.database.writing() as write:
                await repository.forget_upload(write, batch_id)

    # Looking

    async def get(self, read: Read, subject: Subject, batch_id: str) -> Batch:
        """Return a batch of the key's workspace; an intern's own key has those of its intern.

        Raises:
            NotFound: There is none.
            Gone: It is deleted, or past its retention.
        """
        found = await repository.get(read, batch_id, policy.visibility_of(subject))
        if found is None:
            raise NotFound(_NO_SUCH)
        if not policy.is_kept(found, self.context.rules, self.context.clock.now()):
            raise Gone("The batch was deleted, or is past its retention.")
        return found

    async def results(self, read: Read, batch: Batch) -> Sequence[ResultPart] | None:
        """Return where the results so far of a batch are; None until its charge is covered."""
        is_free_to_read = batch.released or batch.status is BatchStatus.FAILED
        if is_free_to_read or await self.context.accounting.is_covered(read, batch.account_id):
            return await repository.parts(read, batch.id)
        return None

    async def require_stored(self, batch: Batch, parts: Sequence[ResultPart]) -> None:
        """Check that results of a batch are there, before a reply begins that would be cut.

        Raises:
            BatchesUnavailable: Some are not.
        """
        if not await are_stored(self.context.blobs, [part.key for part in parts]):
            _log.error("batch_results_missing", batch=batch.id)
            raise BatchesUnavailable("Results of the batch are missing from the store of files.")

    async def release(self, batch: Batch) -> None:
        """Let the results of a batch, which are covered now, be read for ever."""
        if not batch.released:
            async with self.context.database.writing() as write:
                await repository.release(write, batch.id)

    async def page(
        self, read: Read, subject: Subject, wanted: BatchFilter, after: str | None, limit: int
    ) -> tuple[Sequence[Batch], bool]:
        """Return batches that a key may know of, newest first, and whether there are more.

        `after` is the id of the last one of the page before; `Invalid` where it is none of them.
        """
        visibility, last = policy.visibility_of(subject), None
        if after is not None:
            last = await repository.get(read, after, visibility)
            if last is None:
                raise Invalid("after: no such batch.")
        kept = replace(wanted, kept_since=self.context.clock.now() - self.context.rules.retention)
        found = await repository.page(read, visibility, kept, last, limit + 1)
        return found[:limit], len(found) > limit

    # Ending

    async def cancel(self, write: Write, subject: Subject, batch_id: str) -> Batch:
        """Begin no more items of a batch, which may still be `cancelling` when this returns it.

        What is finished is kept and charged.

        Raises:
            NotFound: There is none.
            Gone: It is deleted, or past its retention.
            Conflict: It has ended, or is about to.
        """
        found = await self.get(write, subject, batch_id)
        if found.status is BatchStatus.CANCELLING:
            return found
        moved = await repository.move(write, batch_id, BatchStatus.CANCELLING)
        if moved is None:
            now_is = (await self.get(write, subject, batch_id)).status
            raise Conflict(f"The batch is {now_is}; it cannot be cancelled any more.")
        write.notify(Topic.BATCH, batch_id)
        await failpoint("batch.cancel.after")
        return moved

    async def delete(self, subject: Subject, batch_id: str) -> Batch:
        """Delete a batch that has ended, with its items and results; what was booked stays.

        Raises:
            NotFound: There is none, or it is deleted already, or past its retention.
            Conflict: It has not ended.
            BatchesUnavailable: It is deleted, but its blobs could not be removed; that is tried
                again until it succeeds.
        """
        async with self.context.database.writing() as write:
            try:
                found = await self.get(write, subject, batch_id)
            except Gone as gone_before:
                # The public gateway's clients know no 410 of a deletion.
                raise NotFound(gone_before.message) from None
            gone = await repository.mark_deleted(write, batch_id, self.context.clock.now())
            if gone is None:
                message = f"The batch is {found.status}; cancel it first, or wait for its end."
                raise Conflict(message)
        if not await remove_blobs(self.context.blobs, batch_id):
            message = "The batch is deleted; its files are removed as soon as that is possible."
            raise BatchesUnavailable(message)
        async with self.context.database.writing() as write:
            await repository.mark_purged(write, batch_id, self.context.clock.now())
        return gone
