import asyncio

import pytest

from tests.support.loop_time import LoopTime
from tests.support.seams.api import GRACE_SECONDS, LEAST_RATE, BodyMemory, Hold, Message, read_body
from tests.unit.inference.fakes import steps
from tollhouse.kernel.errors import TimedOut, Unavailable

MB = 1_000_000


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    return LoopTime(monkeypatch)


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

    async def gives_up(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


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
    await large.gives_up()
    await steps()
    assert later.holds
    await small.ends()
    await later.ends()


async def test_a_body_holds_at_most_twice_what_has_arrived() -> None:
    with BodyMemory(100, 9).hold("a") as hold:
        async with hold.arrival():
            await hold.keep(10, 60)
            assert hold.size == 20
            await hold.keep(15, 60)
            assert hold.size == 20
            await hold.keep(40, 60)
            assert hold.size == 60


class Sender:
    """A client whose body arrives in pieces, when the test says so, and never ends."""

    def __init__(self, memory: BodyMemory, owner: str) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.task = asyncio.ensure_future(self._read(memory.hold(owner)))

    async def _read(self, hold: Hold) -> None:
        with hold:
            await read_body(self._receive, {}, 1_000 * MB, hold)

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": await self._pieces.get(), "more_body": True}

    async def sends(self, size: int) -> None:
        self._pieces.put_nowait(bytes(size))
        await steps()

    async def goes_away(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_one_that_gets_no_more_gives_back_what_it_has() -> None:
    memory = BodyMemory(100 * MB, 0.01)
    full = Holder(memory, "a", 50 * MB)
    await steps()
    refused = Sender(memory, "b")
    await refused.sends(20 * MB)
    await refused.sends(21 * MB)
    with pytest.raises(Unavailable):
        await refused.task
    other = Holder(memory, "b", 50 * MB)
    await steps()
    assert other.holds
    await full.ends()
    await other.ends()


async def test_bodies_that_stop_arriving_end_as_soon_as_another_waits(time: LoopTime) -> None:
    memory = BodyMemory(100 * MB, 30)
    stalled = [Sender(memory, "a"), Sender(memory, "b")]
    for each in stalled:
        await each.sends(25 * MB)
    await time.advance(3_600)
    assert not any(each.task.done() for each in stalled)
    other = Holder(memory, "c", MB)
    await steps()
    assert other.holds
    for each in stalled:
        with pytest.raises(TimedOut):
            await each.task
    await other.ends()


async def test_one_that_stops_arriving_while_another_waits_ends_after_the_grace(
    time: LoopTime,
) -> None:
    memory = BodyMemory(100 * MB, 30)
    stalled = Sender(memory, "a")
    await stalled.sends(40 * MB)
    other = Holder(memory, "b", 90 * MB)
    await steps()
    await time.advance(GRACE_SECONDS - 1)
    await steps()
    assert not stalled.task.done()
    await time.advance(2)
    await steps()
    assert other.holds
    with pytest.raises(TimedOut):
        await stalled.task
    await other.ends()


async def test_one_that_arrives_fast_enough_goes_on_while_another_waits(time: LoopTime) -> None:
    memory = BodyMemory(100 * MB, 3_600)
    fast = Sender(memory, "a")
    await fast.sends(40 * MB)
    other = Holder(memory, "b", 90 * MB)
    for _ in range(60):
        await fast.sends(LEAST_RATE * 2)
        await time.advance(1.5)
        await steps()
    assert not fast.task.done()
    await fast.goes_away()
    await other.ends()


async def test_one_that_arrives_slowly_is_left_alone_once_nobody_waits(time: LoopTime) -> None:
    memory = BodyMemory(100 * MB, 30)
    slow = Sender(memory, "a")
    await slow.sends(40 * MB)
    other = Holder(memory, "b", 90 * MB)
    await steps()
    await other.gives_up()
    await time.advance(3_600)
    await slow.sends(1)
    assert not slow.task.done()
    await slow.goes_away()


async def test_one_that_waits_for_memory_itself_is_not_slow(time: LoopTime) -> None:
    memory = BodyMemory(100 * MB, 30)
    full = Holder(memory, "a", 50 * MB)
    await steps()
    waiting = Sender(memory, "b")
    await waiting.sends(20 * MB)
    await waiting.sends(20 * MB)
    await waiting.sends(1)
    await time.advance(GRACE_SECONDS + 5)
    await steps()
    assert not waiting.task.done()
    await full.ends()
    await steps()
    assert not waiting.task.done()
    await waiting.goes_away()


async def test_one_whose_body_is_here_is_not_slow(time: LoopTime) -> None:
    memory = BodyMemory(100, 30)
    with memory.hold("a") as hold:
        async with hold.arrival():
            await hold.keep(40, 100)
        waiting = Holder(memory, "b", 90)
        await steps()
        await time.advance(GRACE_SECONDS + 5)
        await steps()
    await waiting.ends()
