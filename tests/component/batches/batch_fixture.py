"""A tenant's batches in a database, and the services that change them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.batches import batch
from tests.support.builders import Tenant, charge, generation_record, reservation
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.accounting import AccountingService, Attribution, Credits, PostingKind
from tests.support.seams.batches import (
    Batch,
    BatchContext,
    BatchRules,
    BatchStatus,
    BatchSweeper,
    ChunkStore,
    ChunkWriter,
    Doorbell,
    ItemError,
    ItemResult,
    LeasedChunk,
    StoredChunk,
    folder_of,
    generation_id,
    input_key,
    item_line,
    load_chunk,
    read_lines,
    repository,
)
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.storage.database import Database
from tollhouse.storage.notifications import Topic

LEASE = timedelta(seconds=30)
ESTIMATE = 10 * NANO_PER_CREDIT


class BatchFixture:
    """A tenant and the services that change its batches."""

    def __init__(
        self, database: Database, tenant: Tenant, clock: FakeClock, ids: SequentialIds
    ) -> None:
        self.database = database
        self.tenant = tenant
        self.clock = clock
        self.ids = ids
        self.attribution = Attribution(app_title="Nightly")
        self.blobs = MemoryBlobs()
        self.rules = BatchRules()
        self.accounting = AccountingService(clock, ids)
        self.doorbell = Doorbell()
        database.notifications.subscribe(Topic.BATCH, self.doorbell.ring)
        self.context = BatchContext(
            database, self.blobs, self.accounting, self.doorbell, self.rules, clock, ids
        )
        self.chunks = ChunkStore(self.context, LEASE)
        self.sweeper = BatchSweeper(self.context, self.chunks)
        self._numbers = 0

    async def grant(self, amount: int, account_id: str | None = None) -> None:
        async with self.database.writing() as write:
            await self.accounting.add_credits(
                write,
                account_id or self.tenant.account.id,
                PostingKind.GRANT,
                amount * NANO_PER_CREDIT,
            )

    async def charge(self, cost_nano: int) -> None:
        """Charge for a request that belongs to no batch."""
        record = generation_record(
            id="gen-live",
            account_id=self.tenant.account.id,
            workspace_id=self.tenant.workspace.id,
            key_hash=self.tenant.key.hash,
            charge=charge(cost_nano),
        )
        async with self.database.writing() as write:
            await self.accounting.book(write, [record])

    async def submit(self, items: int = 10, chunk: int = 5, **fields: Any) -> Batch:
        """Store a batch of so many items, so many in a chunk."""
        self._numbers += 1
        made = batch(
            **{
                "id": f"batch_{self._numbers:032}",
                "account_id": self.tenant.account.id,
                "workspace_id": self.tenant.workspace.id,
                "key_hash": self.tenant.key.hash,
                "total": items,
                "created_at": self.clock.now(),
                "expires_at": self.clock.now() + self.rules.window,
                **fields,
            }
        )
        chunks: list[StoredChunk] = []
        for number, first in enumerate(range(0, items, chunk)):
            writer, count = ChunkWriter(), min(chunk, items - first)
            for at in range(first, first + count):
                writer.add(item_line(f"c-{at}", b'{"messages":[]}'))
            closed = writer.finish()
            assert closed is not None
            await self.blobs.put(input_key(folder_of(made.id), number), closed.data)
            chunks.append(StoredChunk(number, first, count))
        async with self.database.writing() as write:
            place = made.id, made.account_id, made.key_hash, ESTIMATE, made.created_at
            await self.accounting.reserve(write, reservation(*place))
            await repository.add(write, made, chunks)
        return made

    async def lease(self) -> LeasedChunk:
        leased = await self.chunks.lease()
        assert leased is not None
        return leased

    def answered_result(
        self, leased: LeasedChunk, number: int, cost_nano: int = 1_000
    ) -> ItemResult:
        """Return the result of an item that succeeded."""
        record = generation_record(
            id=generation_id(leased.batch, number),
            account_id=self.tenant.account.id,
            workspace_id=self.tenant.workspace.id,
            key_hash=self.tenant.key.hash,
            charge=charge(cost_nano),
            created_at=self.clock.now(),
        )
        return ItemResult(number, b'{"custom_id":"c-%d"}' % number, record)

    def failed_result(self, number: int, *, run: bool = False) -> ItemResult:
        """Return the result of an item that failed."""
        error = ItemError("invalid_request_error", "It is wrong.")
        record = generation_record(
            id=f"failed-{number}",
            account_id=self.tenant.account.id,
            key_hash=self.tenant.key.hash,
            charge=charge(0),
        )
        return ItemResult(number, b'{"custom_id":"c-%d"}' % number, record if run else None, error)

    async def finish(self, leased: LeasedChunk, cost_nano: int = 1_000) -> Batch | None:
        """Complete the rest of a chunk."""
        chunk = leased.lease.chunk
        numbers = set(range(chunk.first, chunk.first + chunk.lines)) - leased.lease.done
        results = [self.answered_result(leased, number, cost_nano) for number in sorted(numbers)]
        return await self.chunks.commit(leased, results, 1, finished=True)

    async def answer_all(self, cost_nano: int = 1_000) -> None:
        """Complete every chunk that is ready."""
        while (leased := await self.chunks.lease()) is not None:
            await self.finish(leased, cost_nano)

    async def set_status(self, batch_id: str, target: BatchStatus, **facts: object) -> Batch | None:
        async with self.database.writing() as write:
            return await repository.move(write, batch_id, target, **facts)

    async def get(self, batch_id: str) -> Batch:
        async with self.database.reading() as read:
            found = await repository.get(read, batch_id)
        assert found is not None
        return found

    async def results(self, batch_id: str) -> list[bytes]:
        """Return the lines of a batch's results."""
        async with self.database.reading() as read:
            parts = await repository.parts(read, batch_id)
        blobs = [await load_chunk(self.blobs, part.key) for part in parts]
        return [line for blob in blobs for line in read_lines(blob)]

    async def credits(self) -> Credits:
        async with self.database.reading() as read:
            return await self.accounting.credits(read, self.tenant.account.id)

    async def reserved_nano(self) -> int:
        """Return the nano-credits that batches reserve of the key."""
        async with self.database.reading() as read:
            standing = await self.accounting.key_status(read, self.tenant.key.hash)
        return standing.reserved_nano

    def with_rules(self, **rules: Any) -> None:
        """Change the rules for services that are built from now on."""
        self.rules = replace(self.rules, **rules)
        self.context = replace(self.context, rules=self.rules)
        self.sweeper = BatchSweeper(self.context, self.chunks)
