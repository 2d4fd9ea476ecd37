import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.builders import OPERATOR
from tests.support.seams.batches import (
    Batch,
    BatchesUnavailable,
    BatchFilter,
    BatchLimits,
    BatchReceiver,
    BatchService,
    Submitter,
    repository,
)
from tests.support.seams.identity import (
    IdentityService,
    InternKeys,
    KeyKind,
    NewKey,
    Subject,
    subject_of,
)
from tests.support.seams.inference import Catalog, Dialect, models
from tollhouse.kernel.errors import (
    Conflict,
    Gone,
    RateLimited,
)
from tollhouse.storage.blobs import BlobsFull
from tollhouse.storage.database import Write

MODEL = "simulated/echo"


def body(items: int = 3, **fields: Any) -> dict[str, Any]:
    said = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 10}
    return {
        "endpoint": "/v1/chat/completions",
        "model": MODEL,
        "requests": [{"custom_id": f"c-{at}", "body": said} for at in range(items)],
        **fields,
    }


async def pieces(sent: dict[str, Any] | bytes) -> AsyncIterator[bytes]:
    raw = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    for start in range(0, len(raw), 100):
        yield raw[start : start + 100]


class Office:
    """The service, as one tenant's key sees it."""

    def __init__(self, batches: BatchFixture) -> None:
        self.batches = batches
        self.settled = 0
        self.reloaded: list[tuple[str, tuple[str, ...], bool]] = []
        """Of whom, and whether workers had heard of the batch before."""

        async def settled() -> None:
            self.settled += 1

        async def reload(account_id: str, key_hashes: Sequence[str]) -> None:
            named = await batches.doorbell.rung(0)
            self.reloaded.append((account_id, tuple(key_hashes), bool(named)))

        async def reserve(_: object) -> None:
            """Nobody else spends."""

        self.service = BatchService(
            batches.context,
            BatchReceiver(batches.blobs, BatchLimits()),
            Catalog(models()),
            lambda _: {Dialect.CHAT, Dialect.EMBEDDINGS},
            settled,
            reload,
            reserve,
        )
        self.subject: Subject = subject_of(batches.tenant.key)

    async def submit(
        self,
        sent: dict[str, Any] | bytes | None = None,
        key: str | None = None,
        subject: Subject | None = None,
    ) -> Batch:
        sender = Submitter(subject or self.subject, self.batches.attribution, key)
        return await self.service.submit(sender, pieces(body() if sent is None else sent))

    async def get(self, batch_id: str, subject: Subject | None = None) -> Batch:
        async with self.batches.database.reading() as read:
            return await self.service.get(read, subject or self.subject, batch_id)

    async def cancel(self, batch_id: str, subject: Subject | None = None) -> Batch:
        async with self.batches.database.writing() as write:
            return await self.service.cancel(write, subject or self.subject, batch_id)

    async def listed(self, subject: Subject | None = None, after: str | None = None) -> list[str]:
        async with self.batches.database.reading() as read:
            found, _ = await self.service.page(
                read, subject or self.subject, BatchFilter(), after, 100
            )
        return [each.id for each in found]

    async def count(self) -> int:
        return len(await self.listed())

    async def boot(self, intern_id: str) -> Subject:
        """Give an intern its key, with another text at each boot."""
        batches = self.batches
        keys = InternKeys(batches.clock, batches.ids)
        account, workspace = batches.tenant.account.id, batches.tenant.workspace.id
        wanted = NewKey(f"intern {intern_id}", kind=KeyKind.INTERN, intern_id=intern_id)
        async with batches.database.writing() as write:
            issued = await keys.issue(write, account, workspace, wanted)
        return subject_of(issued.key)

    async def delete_key(self, key_hash: str) -> None:
        """Delete a key, as a manager may."""
        batches = self.batches
        async with batches.database.writing() as write:
            identity = IdentityService(batches.clock, batches.ids)
            await identity.delete_key(write, OPERATOR, key_hash)

    async def nothing_is_left(self) -> bool:
        async with self.batches.database.writing() as write:
            uploads = await repository.give_up_uploads(write, self.batches.clock.now())
        return not (
            uploads
            or self.batches.blobs.blobs
            or await self.batches.reserved_nano()
            or await self.count()
        )


@pytest.fixture
def office(batches: BatchFixture) -> Office:
    return Office(batches)


async def test_admission_reads_the_account_again_before_workers_hear_of_a_batch(
    office: Office,
) -> None:
    await office.submit()
    subject = office.subject
    assert office.reloaded == [(subject.account_id, subject.key_hashes, False)]


async def test_what_a_batch_may_cost_is_reserved_once_the_books_are_up_to_date(
    office: Office,
) -> None:
    await office.submit()
    assert await office.batches.reserved_nano() > 3 * 10 * 2_000
    assert office.settled == 1


async def test_who_answers_for_its_key_then_is_noted_and_reserved_of(office: Office) -> None:
    office.subject = replace(office.subject, payer_hash="payer")
    made = await office.submit()
    assert (await office.get(made.id)).payer_hash == "payer"
    batches = office.batches
    async with batches.database.reading() as read:
        reserved = (await batches.accounting.key_status(read, "payer")).reserved_nano
    assert reserved == await batches.reserved_nano()


async def test_a_store_without_room_refuses_and_keeps_nothing(office: Office) -> None:
    office.batches.blobs.failures[0] = BlobsFull("full")
    with pytest.raises(BatchesUnavailable):
        await office.submit()
    assert await office.nothing_is_left()


async def test_a_batch_whose_commit_was_not_seen_to_succeed_keeps_its_items(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, transactions = office.batches.database, 0
    whole = database.writing

    @asynccontextmanager
    async def with_a_lost_answer() -> AsyncGenerator[Write]:
        nonlocal transactions
        transactions += 1
        is_last = transactions == 2  # the first one notes that an upload began
        async with whole() as write:
            yield write
        if is_last:
            raise ConnectionError

    monkeypatch.setattr(database, "writing", with_a_lost_answer)
    with pytest.raises(ConnectionError):
        await office.submit()
    leased = await office.batches.lease()
    assert len(await office.batches.chunks.input_of(leased)) == 3


async def test_many_submits_at_once_do_not_pass_the_limit(office: Office) -> None:
    office.batches.with_rules(most_open=3)
    limited = Office(office.batches)
    results = await asyncio.gather(*(limited.submit() for _ in range(8)), return_exceptions=True)
    made = [each for each in results if isinstance(each, Batch)]
    assert len(made) == 3
    assert sum(isinstance(each, RateLimited) for each in results) == 5
    assert len({key.split("/")[1] for key in office.batches.blobs.blobs}) == 3


async def test_what_cannot_be_removed_now_is_removed_later(office: Office) -> None:
    made = await office.submit()
    await office.batches.answer_all()
    office.batches.blobs.failing_deletion = BlobsFull("away")
    with pytest.raises(BatchesUnavailable):
        await office.service.delete(office.subject, made.id)
    with pytest.raises(Gone):
        await office.get(made.id)
    office.batches.blobs.failing_deletion = None
    await office.batches.sweeper.sweep()
    assert not office.batches.blobs.blobs


async def test_what_is_past_its_retention_is_gone_and_not_listed(office: Office) -> None:
    made = await office.submit()
    await office.batches.answer_all()
    office.batches.clock.advance(office.batches.rules.retention.total_seconds())
    with pytest.raises(Gone):
        await office.get(made.id)
    assert await office.count() == 0


# Interns' own keys


async def test_an_intern_whose_key_a_manager_deleted_sees_its_batches_with_its_next_one(
    office: Office,
) -> None:
    first = await office.boot("ada")
    made = await office.submit(subject=first)
    await office.delete_key(first.key_hash)
    ada = await office.boot("ada")
    assert ada.key_hash != first.key_hash
    assert await office.listed(ada) == [made.id]
    assert (await office.get(made.id, ada)).id == made.id


async def test_an_interns_key_learns_nothing_by_the_idempotency_key_of_another(
    office: Office,
) -> None:
    await office.submit(key="once")
    with pytest.raises(Conflict):
        await office.submit(key="once", subject=await office.boot("ada"))
