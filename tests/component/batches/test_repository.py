from datetime import timedelta
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.seams.accounting import Attribution, Usage
from tests.support.seams.batches import (
    NEXT,
    Batch,
    BatchEndpoint,
    BatchFilter,
    BatchStatus,
    VisibilityFilter,
    repository,
)
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


async def test_an_idempotency_key_is_one_workspaces(batches: BatchFixture) -> None:
    made = await batches.submit(idempotency_key="once")
    async with batches.database.reading() as read:
        mine = await repository.with_idempotency_key(read, made.workspace_id, "once")
        assert mine == made
        assert await repository.with_idempotency_key(read, "other", "once") is None
        assert await repository.with_idempotency_key(read, made.workspace_id, "two") is None


async def listed(
    batches: BatchFixture, limit: int = 100, after: Batch | None = None, **wanted: object
) -> Any:
    visibility, filters = VisibilityFilter(batches.tenant.workspace.id), BatchFilter(**wanted)  # type: ignore[arg-type]
    async with batches.database.reading() as read:
        return [each.id for each in await repository.page(read, visibility, filters, after, limit)]


async def test_batches_are_listed_newest_first_page_by_page(batches: BatchFixture) -> None:
    made = []
    for number in range(7):
        batches.clock.advance(number % 2)
        made.append(await batches.submit(items=1))
    pages, after = [], None
    while page := await listed(batches, 3, after):
        pages.append(page)
        after = await batches.get(page[-1])
    newest = sorted(made, key=lambda each: (each.created_at, each.id), reverse=True)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [name for page in pages for name in page] == [each.id for each in newest]


async def test_a_list_has_only_what_its_filters_want(batches: BatchFixture) -> None:
    old = await batches.submit(items=1)
    batches.clock.advance(60)
    await batches.set_status(old.id, BatchStatus.CANCELLING)
    new = await batches.submit(items=1)
    await batches.submit(items=1, workspace_id="other")
    assert await listed(batches) == [new.id, old.id]
    assert await listed(batches, statuses=[BatchStatus.IN_PROGRESS]) == [old.id]
    assert await listed(batches, statuses=[BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS]) == [
        new.id,
        old.id,
    ]
    assert await listed(batches, statuses=[BatchStatus.COMPLETED]) == []
    assert await listed(batches, created_after=old.created_at) == [new.id]
    assert await listed(batches, created_before=new.created_at) == [old.id]
    assert await listed(batches, kept_since=old.created_at) == [new.id]


async def test_what_is_deleted_is_not_listed(batches: BatchFixture) -> None:
    made = await batches.submit(items=1)
    await batches.answer_all()
    async with batches.database.writing() as write:
        assert await repository.mark_deleted(write, made.id, batches.clock.now()) is not None
    assert await listed(batches) == []


@pytest.mark.parametrize("status", [status for status in BatchStatus if not status.is_terminal])
async def test_what_has_not_ended_cannot_be_deleted(
    batches: BatchFixture, status: BatchStatus
) -> None:
    made = await batches.submit(items=1, chunk=1)
    await put_into(batches, status)
    async with batches.database.writing() as write:
        assert await repository.mark_deleted(write, made.id, batches.clock.now()) is None


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


async def test_parts_are_in_the_order_of_their_chunks(batches: BatchFixture) -> None:
    made = await batches.submit(items=3, chunk=1)
    leases = [await batches.lease() for _ in range(3)]
    for leased in reversed(leases):
        await batches.finish(leased)
    async with batches.database.reading() as read:
        parts = await repository.parts(read, made.id)
    assert [part.chunk for part in parts] == [0, 1, 2]
