"""The settler alone, with a writer whose moment of writing the test chooses."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tollhouse.accounting.ports import Unbookable
from tollhouse.accounting.settlement.settler import Settler
from tollhouse.accounting.types import GenerationRecord
from tollhouse.testing.builders import generation_record


class Writer:
    """Writes when it is let; remembers the ids of each group."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.failure: Callable[[list[str]], Exception | None] = lambda _: None
        self.closed = False

    async def write(self, records: Sequence[GenerationRecord]) -> None:
        group = [record.id for record in records]
        self.groups.append(group)
        self.begun.set()
        await self.let.wait()
        if (failure := self.failure(group)) is not None:
            raise failure

    async def close(self) -> None:
        self.closed = True


def settle_all(settler: Settler, *ids: str) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(settler.settle(generation_record(id=id_))) for id_ in ids]


async def outcome(waiting: Awaitable[None]) -> str:
    try:
        await waiting
    except (OSError, Unbookable) as error:
        return type(error).__name__
    return "booked"


@pytest.fixture
def writer() -> Writer:
    return Writer()


@pytest.fixture
def settler(writer: Writer) -> Settler:
    return Settler(writer)


async def test_a_charge_is_waited_for_until_it_is_written(settler: Settler, writer: Writer) -> None:
    (waiting,) = settle_all(settler, "a")
    await writer.begun.wait()
    assert not waiting.done()
    writer.let.set()
    await waiting


async def test_charges_that_come_during_a_write_form_the_next_group(
    settler: Settler, writer: Writer
) -> None:
    first = settle_all(settler, "a")
    await writer.begun.wait()
    rest = settle_all(settler, "b", "c", "d")
    await asyncio.sleep(0)
    writer.let.set()
    await asyncio.gather(*first, *rest)
    assert writer.groups == [["a"], ["b", "c", "d"]]


async def test_charges_that_come_right_after_a_write_gather(
    settler: Settler, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollhouse.accounting.settlement.settler.GATHER_SECONDS", 0.3)
    writer.let.set()
    await asyncio.gather(*settle_all(settler, "a"))
    early = settle_all(settler, "b")
    await asyncio.sleep(0.01)
    late = settle_all(settler, "c")
    await asyncio.gather(*early, *late)
    assert writer.groups == [["a"], ["b", "c"]]


async def test_a_group_has_a_largest_size(settler: Settler, writer: Writer) -> None:
    writer.let.set()
    await asyncio.gather(*settle_all(settler, *(str(number) for number in range(1_100))))
    assert [len(group) for group in writer.groups] == [500, 500, 100]


async def test_a_failed_write_fails_everyone_who_waits_for_it(
    settler: Settler, writer: Writer
) -> None:
    writer.failure = lambda _: OSError("disk full")
    writer.let.set()
    waiting = settle_all(settler, "a", "b", "c")
    assert [await outcome(one) for one in waiting] == ["OSError"] * 3


async def test_a_failed_write_is_tried_once(settler: Settler, writer: Writer) -> None:
    writer.failure = lambda _: OSError("disk full")
    writer.let.set()
    await asyncio.gather(*settle_all(settler, "a", "b"), return_exceptions=True)
    assert writer.groups == [["a", "b"]]


async def test_after_a_failed_write_the_next_one_succeeds(settler: Settler, writer: Writer) -> None:
    writer.failure = lambda group: OSError("disk full") if group == ["a"] else None
    writer.let.set()
    assert await outcome(settle_all(settler, "a")[0]) == "OSError"
    assert await outcome(settle_all(settler, "b")[0]) == "booked"


async def test_a_charge_that_cannot_be_stored_fails_alone(settler: Settler, writer: Writer) -> None:
    writer.failure = lambda group: Unbookable("out of range") if "bad" in group else None
    writer.let.set()
    waiting = settle_all(settler, "a", "bad", "b")
    assert [await outcome(one) for one in waiting] == ["booked", "Unbookable", "booked"]


async def test_a_cancelled_waiter_is_booked_all_the_same(settler: Settler, writer: Writer) -> None:
    (waiting,) = settle_all(settler, "a")
    await writer.begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    writer.let.set()
    await settler.close()
    assert writer.groups == [["a"]]


async def test_a_waiter_that_is_cancelled_before_the_write_begins_is_booked_too(
    settler: Settler, writer: Writer
) -> None:
    first = settle_all(settler, "a")
    await writer.begun.wait()
    (late,) = settle_all(settler, "b")
    await asyncio.sleep(0)
    late.cancel()
    writer.let.set()
    await asyncio.gather(*first)
    await settler.close()
    assert writer.groups == [["a"], ["b"]]


async def test_a_write_that_fails_after_its_waiter_was_cancelled_is_no_surprise(
    settler: Settler, writer: Writer
) -> None:
    writer.failure = lambda _: OSError("disk full")
    (waiting,) = settle_all(settler, "a")
    await writer.begun.wait()
    waiting.cancel()
    writer.let.set()
    await settler.close()
    assert waiting.cancelled()


async def test_closing_writes_what_is_pending_first(settler: Settler, writer: Writer) -> None:
    waiting = settle_all(settler, "a", "b")
    await writer.begun.wait()
    closing = asyncio.create_task(settler.close())
    await asyncio.sleep(0)
    assert not writer.closed
    writer.let.set()
    await asyncio.gather(closing, *waiting)
    assert writer.closed
