import asyncio

import pytest

from tests.support.clock import FakeClock
from tests.support.seams.batches import (
    FIRST_PLACES,
    ConcurrencyLimiter,
    ConcurrencyLimiters,
    FairnessGate,
)
from tests.support.waiting import take_turns


def limiter(clock: FakeClock, most: int = 64, *, busy: bool = False) -> ConcurrencyLimiter:
    return ConcurrencyLimiter(most, FairnessGate(clock, lambda: busy))


async def enters(one: ConcurrencyLimiter, patience: float = 0.01, account: str = "account") -> bool:
    return await one.enter(account, patience, lambda: True)


def test_a_round_of_answers_makes_one_more_place(clock: FakeClock) -> None:
    one = limiter(clock)
    for _ in range(9):
        one.answered(one.requests.begin())
    assert one.places == FIRST_PLACES + 1


def test_a_rate_limit_halves_the_places(clock: FakeClock) -> None:
    one = limiter(clock)
    one.limited(None)
    assert one.places == FIRST_PLACES / 2


def test_those_that_were_under_way_when_a_pause_began_count_once(clock: FakeClock) -> None:
    one = limiter(clock)
    for _ in range(FIRST_PLACES.__int__()):
        one.limited(None)
    assert one.places == FIRST_PLACES / 2


def test_the_providers_hint_is_how_long_it_is_left_alone(clock: FakeClock) -> None:
    one = limiter(clock)
    one.limited(30)
    assert one.pause_seconds == 30
    clock.advance(30)
    assert one.pause_seconds == 0


def test_pauses_without_a_hint_double_up_to_a_minute_until_there_is_an_answer(
    clock: FakeClock,
) -> None:
    one, pauses = limiter(clock), []
    for _ in range(8):
        one.limited(None)
        pauses.append(one.pause_seconds)
        clock.advance(one.pause_seconds)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    one.answered(one.requests.begin())
    one.limited(None)
    assert one.pause_seconds == 1


def test_while_somebody_waits_for_other_requests_a_quarter_of_the_places_is_left(
    clock: FakeClock,
) -> None:
    assert limiter(clock, busy=True).places == FIRST_PLACES / 4


async def test_nobody_waits_for_a_pause_that_is_longer_than_his_patience(clock: FakeClock) -> None:
    one = limiter(clock)
    one.limited(30)
    assert not await enters(one)


async def test_who_does_not_want_a_place_any_more_leaves_the_queue(clock: FakeClock) -> None:
    one, wanted = limiter(clock, most=1), [True]
    assert await enters(one)
    waiting = asyncio.create_task(one.enter("account", 30, lambda: wanted[0]))
    await asyncio.sleep(0)
    wanted.clear()
    wanted.append(False)
    one.wake()
    assert not await waiting


async def test_no_more_are_in_a_lane_than_it_has_places(clock: FakeClock) -> None:
    one, inside, most = limiter(clock, most=3), 0, 0

    async def one_item() -> None:
        nonlocal inside, most
        while not await enters(one):
            pass
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        one.leave("account")

    await asyncio.gather(*(one_item() for _ in range(50)))
    assert most == 3


def test_each_endpoint_of_a_model_has_a_lane_of_its_own(clock: FakeClock) -> None:
    limiters = ConcurrencyLimiters(64, clock, lambda: False)
    limiters.of("acme", "acme/large").limited(None)
    assert limiters.of("acme", "acme/large") is limiters.of("acme", "acme/large")
    assert limiters.of("acme", "acme/small").pause_seconds == 0
    assert limiters.of("other", "acme/large").pause_seconds == 0


async def test_the_next_place_goes_to_the_account_that_has_the_fewest(clock: FakeClock) -> None:
    one, order = limiter(clock, most=4), []

    async def takes(account: str) -> None:
        assert await enters(one, 30, account)
        order.append(account)

    for _ in range(4):
        await takes("large")
    waiting = [asyncio.create_task(takes(each)) for each in ("large", "large", "small", "small")]
    await asyncio.sleep(0)
    for _ in range(4):
        one.leave("large")
        await take_turns()
    await asyncio.gather(*waiting)
    assert order[4:6] == ["small", "small"]


async def turns_of_five(gate: FairnessGate) -> list[int]:
    """Return in which turn of the loop each of five gets through."""
    turn, passed = 0, []

    async def passes() -> None:
        await gate.wait_turn()
        passed.append(turn)

    tasks = [asyncio.create_task(passes()) for _ in range(5)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    return passed


async def test_beside_requests_that_somebody_waits_for_each_turn_begins_one(
    clock: FakeClock,
) -> None:
    passed = await turns_of_five(FairnessGate(clock, lambda: True))
    assert len(set(passed)) == 5


async def test_after_a_turn_the_loop_rests_for_as_long_as_it_took(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    gate = FairnessGate(clock, lambda: True)

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        clock.advance(0.03)

    monkeypatch.setattr("tollhouse.batches.concurrency.asyncio.sleep", sleep)
    await gate.wait_turn()
    assert rests == [0, pytest.approx(0.03)]
