from datetime import timedelta
from itertools import product

import sqlalchemy as sa

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.seams.accounting import Attribution, Usage
from tests.support.seams.batches import NEXT, BatchEndpoint, BatchStatus, repository
from tollhouse.storage.tables.batches import batches as table


def facts_of(status: BatchStatus, batches: BatchFixture) -> dict[str, object]:
    return {"finalized_at": batches.clock.now()} if status.is_terminal else {}


async def put_into(batches: BatchFixture, status: BatchStatus) -> None:
    """Write a status into every batch, whatever it was."""
    facts = {"finalized_at": None, **facts_of(status, batches)}
    async with batches.database.writing() as write:
        await write.execute(sa.update(table).values(status=status, **facts))


async def test_the_guard_in_sql_is_the_table_in_code(batches: BatchFixture) -> None:
    made = await batches.submit(items=1, chunk=1)
    for start, target in product(BatchStatus, BatchStatus):
        await put_into(batches, start)
        moved = await batches.set_status(made.id, target, **facts_of(target, batches))
        assert (moved is not None) == (target in NEXT[start]), (start, target)
        assert (await batches.get(made.id)).status is (start if moved is None else target)


async def test_every_fact_of_a_batch_is_read_back(batches: BatchFixture) -> None:
    made = await batches.submit(
        endpoint=BatchEndpoint.EMBEDDINGS,
        preferences={"only": ["acme", "other/eu"], "allow_fallbacks": False},
        attribution=Attribution(app_title="Nightly", user_agent="sdk/1"),
        digest="f" * 64,
        idempotency_key="once",
        usage=Usage(1, 2, 3, 4, 5, 6),
        cost_nano=7,
    )
    assert await batches.get(made.id) == made


async def test_what_an_account_submitted_and_has_open_is_counted(batches: BatchFixture) -> None:
    start = batches.clock.now()
    for _ in range(3):
        await batches.submit(items=1)
        batches.clock.advance(600)
    await batches.finish(await batches.lease())
    account = batches.tenant.account.id
    async with batches.database.reading() as read:
        assert await repository.submitted_since(read, account, start) == (
            2,
            start + timedelta(minutes=10),
        )
        assert await repository.submitted_since(read, "other", start) == (0, None)
        assert await repository.count_open(read, account) == 2


async def test_an_upload_that_was_given_up_cannot_end(batches: BatchFixture) -> None:
    async with batches.database.writing() as write:
        await repository.begin_upload(write, "one", batches.clock.now())
        await repository.begin_upload(write, "two", batches.clock.now())
        assert await repository.end_upload(write, "two")
        await repository.give_up_upload(write, "one")
        assert not await repository.end_upload(write, "one")
        assert await repository.give_up_uploads(write, batches.clock.now()) == ["one"]
        await repository.forget_upload(write, "one")
        assert await repository.give_up_uploads(write, batches.clock.now()) == []
