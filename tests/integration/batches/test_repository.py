from datetime import timedelta

import pytest

from tests.integration.batches.desk import BatchDesk
from tollhouse.accounting.types import Attribution, Usage
from tollhouse.batches import repository
from tollhouse.batches.lifecycle import NEXT
from tollhouse.batches.types import Batch, BatchFilter, Endpoint, Sight, Status


def facts_of(status: Status, desk: BatchDesk) -> dict[str, object]:
    return {"finalized_at": desk.clock.now()} if status.is_terminal else {}


async def in_status(desk: BatchDesk, status: Status) -> Batch:
    """Return a batch that came to a status by the shortest way."""
    made = await desk.submit(items=1, chunk=1)
    ways: dict[Status, list[Status]] = {Status.VALIDATING: []}
    waiting = [Status.VALIDATING]
    while waiting:
        at = waiting.pop(0)
        for following in sorted(NEXT[at] - ways.keys()):
            ways[following] = [*ways[at], following]
            waiting.append(following)
    for target in ways[status]:
        assert await desk.move(made.id, target, **facts_of(target, desk)) is not None
    return made


@pytest.mark.parametrize("start", Status)
async def test_the_guard_in_sql_is_the_table_in_code(desk: BatchDesk, start: Status) -> None:
    for target in Status:
        made = await in_status(desk, start)
        moved = await desk.move(made.id, target, **facts_of(target, desk))
        assert (moved is not None) == (target in NEXT[start])
        assert (await desk.stored(made.id)).status is (start if moved is None else target)


async def test_every_fact_of_a_batch_is_read_back(desk: BatchDesk) -> None:
    made = await desk.submit(
        endpoint=Endpoint.EMBEDDINGS,
        wish={"only": ["acme", "other/eu"], "allow_fallbacks": False},
        attribution=Attribution(app_title="Nightly", user_agent="sdk/1"),
        digest="f" * 64,
        idempotency_key="once",
        usage=Usage(1, 2, 3, 4, 5, 6),
        cost_nano=7,
    )
    assert await desk.stored(made.id) == made


async def test_an_idempotency_key_is_one_workspaces(desk: BatchDesk) -> None:
    made = await desk.submit(idempotency_key="once")
    async with desk.database.reading() as read:
        mine = await repository.with_idempotency_key(read, made.workspace_id, "once")
        assert mine == made
        assert await repository.with_idempotency_key(read, "other", "once") is None
        assert await repository.with_idempotency_key(read, made.workspace_id, "two") is None


async def listed(desk: BatchDesk, limit: int = 100, after: Batch | None = None, **wanted: object):  # type: ignore[no-untyped-def]  # noqa: ANN201
    sight, filters = Sight(desk.tenant.workspace.id), BatchFilter(**wanted)  # type: ignore[arg-type]
    async with desk.database.reading() as read:
        return [each.id for each in await repository.page(read, sight, filters, after, limit)]


async def test_batches_are_listed_newest_first_page_by_page(desk: BatchDesk) -> None:
    made = []
    for number in range(7):
        desk.clock.advance(number % 2)
        made.append(await desk.submit(items=1))
    pages, after = [], None
    while page := await listed(desk, 3, after):
        pages.append(page)
        after = await desk.stored(page[-1])
    newest = sorted(made, key=lambda each: (each.created_at, each.id), reverse=True)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [name for page in pages for name in page] == [each.id for each in newest]


async def test_a_list_has_only_what_its_filters_want(desk: BatchDesk) -> None:
    old = await desk.submit(items=1)
    desk.clock.advance(60)
    await desk.move(old.id, Status.CANCELLING)
    new = await desk.submit(items=1)
    await desk.submit(items=1, workspace_id="other")
    assert await listed(desk) == [new.id, old.id]
    assert await listed(desk, statuses=[Status.IN_PROGRESS]) == [old.id]
    assert await listed(desk, statuses=[Status.VALIDATING, Status.IN_PROGRESS]) == [new.id, old.id]
    assert await listed(desk, statuses=[Status.COMPLETED]) == []
    assert await listed(desk, created_after=old.created_at) == [new.id]
    assert await listed(desk, created_before=new.created_at) == [old.id]
    assert await listed(desk, kept_since=old.created_at) == [new.id]


async def test_what_is_deleted_is_not_listed(desk: BatchDesk) -> None:
    made = await desk.submit(items=1)
    await desk.run()
    async with desk.database.writing() as write:
        assert await repository.mark_deleted(write, made.id, desk.clock.now()) is not None
    assert await listed(desk) == []


@pytest.mark.parametrize("status", [status for status in Status if not status.is_terminal])
async def test_what_has_not_ended_cannot_be_deleted(desk: BatchDesk, status: Status) -> None:
    made = await in_status(desk, status)
    async with desk.database.writing() as write:
        assert await repository.mark_deleted(write, made.id, desk.clock.now()) is None


async def test_what_an_account_submitted_and_has_open_is_counted(desk: BatchDesk) -> None:
    start = desk.clock.now()
    for _ in range(3):
        await desk.submit(items=1)
        desk.clock.advance(600)
    await desk.finish(await desk.lease())
    account = desk.tenant.account.id
    async with desk.database.reading() as read:
        assert await repository.submitted_since(read, account, start) == (
            2,
            start + timedelta(minutes=10),
        )
        assert await repository.submitted_since(read, "other", start) == (0, None)
        assert await repository.count_open(read, account) == 2


async def test_an_upload_that_was_given_up_cannot_end(desk: BatchDesk) -> None:
    async with desk.database.writing() as write:
        await repository.begin_upload(write, "one", desk.clock.now())
        await repository.begin_upload(write, "two", desk.clock.now())
        assert await repository.end_upload(write, "two")
        await repository.give_up_upload(write, "one")
        assert not await repository.end_upload(write, "one")
        assert await repository.give_up_uploads(write, desk.clock.now()) == ["one"]
        await repository.forget_upload(write, "one")
        assert await repository.give_up_uploads(write, desk.clock.now()) == []


async def test_parts_are_in_the_order_of_their_chunks(desk: BatchDesk) -> None:
    made = await desk.submit(items=3, chunk=1)
    leases = [await desk.lease() for _ in range(3)]
    for leased in reversed(leases):
        await desk.finish(leased)
    async with desk.database.reading() as read:
        parts = await repository.parts(read, made.id)
    assert [part.chunk for part in parts] == [0, 1, 2]
