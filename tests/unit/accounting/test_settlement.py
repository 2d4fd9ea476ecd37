"""The settler alone, with a writer whose moment of writing the test chooses."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.builders import generation_record
from tests.support.seams.accounting import (
    Attribution,
    BookCharges,
    Booked,
    Flusher,
    GenerationRecord,
    Journal,
    Open,
    SetAside,
    Settler,
    record_of,
)
from tests.support.seams.accounting import settler as module
from tests.support.waiting import take_turns
from tests.unit.accounting.writer import Writer
from tollhouse.kernel.errors import Unavailable


@pytest.fixture(autouse=True)
def _gathers_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal", "holder")
    yield made
    made.close()


@pytest.fixture
async def settler(journal: Journal, writer: Writer) -> AsyncIterator[Settler]:
    made = Settler(journal, writer)
    yield made
    writer.let.set()
    await made.close()


async def settle(settler: Settler, *ids: str) -> None:
    for id_ in ids:
        await settler.settle(generation_record(id=id_))


def left_in(journal: Journal) -> list[str]:
    """Return the ids of the charges that a kill would leave in the journal now."""
    return sorted(record_of(each).id for each in journal.read_unbooked().payloads)


async def test_who_reads_waits_for_the_charges_so_far_and_no_longer(
    settler: Settler, writer: Writer
) -> None:
    writer.let.clear()
    await settle(settler, "a")
    await writer.begun.wait()
    reading = asyncio.create_task(settler.settled())
    await take_turns()
    assert not reading.done()
    writer.failure = lambda group: OSError("later") if "b" in group else None
    await settle(settler, "b")
    writer.let.set()
    await reading
    assert writer.booked == {"a"}


async def test_a_reply_waits_for_a_database_that_does_not_keep_up(
    settler: Settler, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKPRESSURE_PENDING", 2)
    writer.let.clear()
    await settle(settler, "a")
    await writer.begun.wait()
    await settle(settler, "b", "c")
    waiting = asyncio.create_task(settle(settler, "d"))
    await take_turns()
    assert not waiting.done()
    writer.let.set()
    await waiting
    await settler.close()
    assert writer.booked == {"a", "b", "c", "d"}


async def test_a_reply_does_not_wait_for_ever_since_its_charge_is_safe(
    journal: Journal, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKPRESSURE_PENDING", 0)
    settler = Settler(journal, writer, timeout_seconds=0.01)
    writer.failure = lambda _: OSError("disk full")
    await settle(settler, "a", "b")
    assert left_in(journal) == ["a", "b"]
    await settler.close()


async def test_with_sync_a_charge_waits_for_the_disk(
    journal: Journal, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(journal, "sync", lambda: synced.append("synced"))
    settler = Settler(journal, writer, sync=True)
    await settle(settler, "a")
    assert synced == ["synced"]
    await settler.close()


def unable(*_: object) -> NoReturn:
    message = "the disk is gone"
    raise OSError(message)


async def test_what_cannot_be_flushed_is_safe_once_it_is_in_the_books(
    journal: Journal, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "sync", unable)
    settler = Settler(journal, writer, sync=True)
    await settle(settler, "a")
    assert writer.booked == {"a"}
    await settler.close()


async def test_what_can_neither_be_flushed_nor_booked_is_refused(
    journal: Journal, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "sync", unable)
    writer.failure = unable
    settler = Settler(journal, writer, sync=True, timeout_seconds=0.01)
    with pytest.raises(OSError, match="gone"):
        await settle(settler, "a")
    await settler.close()


async def test_a_journal_that_cannot_be_emptied_holds_up_nobody(
    journal: Journal, settler: Settler, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(journal, "empty_booked", unable)
        await settle(settler, "a")
        await settler.settled()
    await settle(settler, "b")
    await settler.settled()
    assert writer.groups == [["a"], ["b"]]


async def test_after_the_end_no_charge_is_taken(
    settler: Settler, writer: Writer, journal: Journal
) -> None:
    writer.failure = lambda _: OSError("disk full")
    await settle(settler, "a")
    await settler.close()
    with pytest.raises(Unavailable):
        await settle(settler, "b")
    assert left_in(journal) == ["a"]


class Observer:
    """Remembers what it is told, and what had happened by then."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.charged_ids: list[str] = []
        self.booked_ids: list[str] = []
        self.invalidated_accounts: list[str] = []

    def rights_of(self, _: GenerationRecord) -> tuple[()]:
        return ()

    def charged(self, record: GenerationRecord, number: int) -> None:
        self.charged_ids.append(record.id)
        assert number == len(self.charged_ids)

    def invalidate(self, account_id: str) -> None:
        self.invalidated_accounts.append(account_id)

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        ids = {record.id for record in records}
        assert ids <= self._writer.booked | self._writer.unbookable
        self.booked_ids += [record.id for record in records]
        assert number == len(self.booked_ids)


async def test_an_observer_hears_of_each_charge_and_of_each_booking(
    settler: Settler, writer: Writer
) -> None:
    settler.observer = observer = Observer(writer)
    await settle(settler, "a", "b")
    assert (observer.charged_ids, observer.booked_ids) == (["a", "b"], [])
    await settler.settled()
    await settle(settler, "c")
    await settler.settled()
    assert observer.booked_ids == ["a", "b", "c"]
    assert writer.firsts == [1, 3]


async def test_a_charge_that_the_journal_did_not_take_is_not_told(
    settler: Settler, writer: Writer, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: bytes) -> NoReturn:
        raise OSError

    settler.observer = observer = Observer(writer)
    monkeypatch.setattr(journal, "append", full)
    with pytest.raises(OSError):  # noqa: PT011 - any will do
        await settle(settler, "a")
    assert observer.charged_ids == []


class TestRoom:
    async def test_a_full_disk_has_none(
        self, settler: Settler, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_: int) -> NoReturn:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(journal, "reserve", full)
        with pytest.raises(Unavailable, match="cannot keep charges"):
            settler.reserve_capacity(1)

    async def test_too_many_that_wait_for_the_database_leave_none(
        self, settler: Settler, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MOST_PENDING", 3)
        writer.let.clear()
        await settle(settler, "a", "b")
        settler.reserve_capacity(1)
        with pytest.raises(Unavailable):
            settler.reserve_capacity(2)
        await settle(settler, "c")
        with pytest.raises(Unavailable):
            await settle(settler, "d")
        writer.let.set()
        await settler.settled()
        settler.reserve_capacity(2)
        assert writer.booked == {"a", "b", "c"}


async def test_after_a_charge_was_set_aside_its_account_is_read_again(
    settler: Settler, writer: Writer
) -> None:
    settler.observer = observer = Observer(writer)
    writer.unbookable.add("b")
    await settle(settler, "a", "b")
    await settler.settled()
    assert observer.invalidated_accounts == ["account"]


# Whoever waits shares a flush that began after it came


class Disk:
    """Flushes when it is let, and counts."""

    def __init__(self) -> None:
        self.flushes = 0
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.failure: Exception | None = None

    def flush(self) -> None:
        self.flushes += 1
        self.begun.release()
        self.let.acquire()
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def begun(disk: Disk) -> None:
    await asyncio.to_thread(disk.begun.acquire)


async def test_who_comes_during_a_flush_waits_for_the_next_one(disk: Disk) -> None:
    flusher = Flusher(disk.flush)
    first = asyncio.create_task(flusher.flushed())
    await begun(disk)
    late = [asyncio.create_task(flusher.flushed()) for _ in range(5)]
    await asyncio.sleep(0)
    disk.let.release()
    await first
    assert not any(each.done() for each in late)
    disk.let.release()
    await asyncio.gather(*late)
    assert disk.flushes == 2


def test_messages_show_neither_a_password_nor_a_charge() -> None:
    aside = SetAside(b"a charge", "OverflowError")
    shown = [Open("postgresql://user:password@host/books", "journal", "the process")]
    shown += [BookCharges([b"a charge"]), Booked([aside]), aside]
    assert list(map(repr, shown)) == ["Open()", "BookCharges()", "Booked()", "SetAside()"]


def test_a_record_shows_nothing_that_its_caller_said() -> None:
    said = Attribution(*(f"said {number}" for number in range(8)))
    record = generation_record(id="gen-1", attribution=said, upstream_id="said")
    assert repr(record) == "GenerationRecord(id='gen-1')"
