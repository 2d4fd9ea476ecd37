from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from tests.unit.inference.fakes import steps
from tollhouse.api import body_memory
from tollhouse.api.body_memory import BodyMemory
from tollhouse.kernel.errors import TimedOut, Unavailable

if TYPE_CHECKING:
    from tollhouse.api.body_memory import Hold


class Holder:
    """A request that holds memory until it is let go."""

    def __init__(self, memory: BodyMemory, owner: str, size: int) -> None:
        self.let_go = asyncio.Event()
        self.holds = False
        self.task = asyncio.ensure_future(self._hold(memory.hold(owner), size))

    async def _hold(self, hold: Hold, size: int) -> None:
        with hold:
            await hold.take(size)
            self.holds = True
            await self.let_go.wait()

    async def ends(self) -> None:
        self.let_go.set()
        await self.task


async def test_an_account_holds_at_most_half() -> None:
    memory = BodyMemory(100, 9)
    greedy = [Holder(memory, "a", 20) for _ in range(4)]
    other = Holder(memory, "b", 40)
    await steps()
    assert [each.holds for each in greedy] == [True, True, False, False]
    assert other.holds
    await greedy[0].ends()
    await steps()
    assert [each.holds for each in greedy[1:]] == [True, True, False]
    for each in (*greedy, other):
        await each.ends()


async def test_accounts_take_turns_for_what_becomes_free() -> None:
    memory = BodyMemory(100, 9)
    first = [Holder(memory, "a", 50), Holder(memory, "b", 50)]
    await steps()
    many = [Holder(memory, "c", 50) for _ in range(3)]
    one = Holder(memory, "d", 50)
    for each in first:
        await each.ends()
    await steps()
    assert [each.holds for each in many] == [True, False, False]
    assert one.holds
    one.let_go.set()
    for each in many:
        await each.ends()


async def test_one_that_is_larger_than_all_is_served_alone() -> None:
    memory = BodyMemory(100, 9)
    large = Holder(memory, "a", 500)
    await steps()
    assert large.holds
    await large.ends()


async def test_one_that_waits_too_long_is_told_to_come_again() -> None:
    memory = BodyMemory(100, 0.01)
    holder = Holder(memory, "a", 100)
    await steps()
    with pytest.raises(Unavailable), memory.hold("b") as hold:
        await hold.take(1)
    await holder.ends()
    with memory.hold("b") as hold:
        await hold.take(100)


async def test_one_that_went_away_takes_nothing() -> None:
    memory = BodyMemory(100, 9)
    holder = Holder(memory, "a", 100)
    gone = Holder(memory, "b", 100)
    await steps()
    gone.task.cancel()
    await asyncio.gather(gone.task, return_exceptions=True)
    await holder.ends()
    last = Holder(memory, "c", 100)
    await steps()
    assert last.holds
    await last.ends()


async def test_a_large_one_is_not_kept_out_by_small_ones() -> None:
    memory = BodyMemory(100, 9)
    small = Holder(memory, "a", 40)
    await steps()
    large = Holder(memory, "b", 90)
    later = Holder(memory, "c", 30)
    await steps()
    assert (large.holds, later.holds) == (False, False)
    await small.ends()
    await steps()
    assert (large.holds, later.holds) == (True, False)
    await large.ends()
    await steps()
    assert later.holds
    await later.ends()


async def test_one_that_gives_up_lets_those_behind_it_be_served() -> None:
    memory = BodyMemory(100, 9)
    small = Holder(memory, "a", 40)
    await steps()
    large = Holder(memory, "b", 90)
    later = Holder(memory, "c", 30)
    await steps()
    large.task.cancel()
    await asyncio.gather(large.task, return_exceptions=True)
    await steps()
    assert later.holds
    await small.ends()
    await later.ends()


async def test_nobody_wants_memory_once_the_only_one_that_waits_gives_up() -> None:
    memory = BodyMemory(100, 0.01)
    full = Holder(memory, "a", 50)
    await steps()
    with pytest.raises(Unavailable), memory.hold("b") as hold:
        await hold.take(60)
    assert not memory.is_wanted
    await full.ends()


async def test_a_body_holds_at_most_twice_what_has_arrived() -> None:
    with BodyMemory(100, 9).hold("a") as hold:
        await hold.keep(10, 60)
        assert hold.size == 20
        await hold.keep(15, 60)
        assert hold.size == 20
        await hold.keep(40, 60)
        assert hold.size == 60


async def test_one_that_gets_no_more_gives_back_what_it_has() -> None:
    memory = BodyMemory(100, 0.01)
    full = Holder(memory, "a", 50)
    await steps()
    with memory.hold("b") as hold:
        await hold.keep(20, 100)
        with pytest.raises(Unavailable):
            await hold.keep(41, 100)
    other = Holder(memory, "b", 50)
    await steps()
    assert other.holds
    await full.ends()
    await other.ends()


@pytest.mark.parametrize("wanted", [False, True])
async def test_a_slow_one_is_ended_only_while_others_wait(
    monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    monkeypatch.setattr(body_memory, "GRACE_SECONDS", 0.0)
    memory = BodyMemory(100, 9)
    with memory.hold("a") as hold:
        await hold.keep(40, 100)
        waiting = Holder(memory, "b", 90) if wanted else None
        await asyncio.sleep(0.01)
        with pytest.raises(TimedOut) if wanted else nullcontext():
            await hold.keep(41, 100)
    if waiting is not None:
        await waiting.ends()
