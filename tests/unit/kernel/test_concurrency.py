import asyncio
from typing import Any

import pytest

from tests.support.loop_time import LoopTime
from tests.support.waiting import take_turns
from tollhouse.kernel.concurrency import IdleDeadline
from tollhouse.kernel.request_scope import lift_deadline, set_deadline
from tollhouse.kernel.sliding_window import SlidingMinute


async def test_what_goes_on_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    async with IdleDeadline(60) as deadline:
        for _ in range(3):
            await time.advance(40)
            deadline.reset()
    assert not deadline.expired()


async def test_another_timeout_is_not_its_own() -> None:
    deadline = IdleDeadline(60)
    with pytest.raises(TimeoutError):
        await failing(deadline)
    assert not deadline.expired()


async def failing(deadline: IdleDeadline) -> None:
    async with deadline:
        raise TimeoutError


async def test_a_deadline_that_was_lifted_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    scope: dict[str, Any] = {}
    async with asyncio.timeout(60) as limit:
        set_deadline(scope, limit)
        assert lift_deadline(scope)
        await time.advance(120)
        await take_turns()


async def test_a_deadline_that_has_passed_stays() -> None:
    found: list[bool] = []
    with pytest.raises(TimeoutError):
        await lifted_too_late(found)
    assert found == [False]


def test_an_operation_without_a_deadline_has_none_to_lift() -> None:
    assert lift_deadline({})


async def lifted_too_late(found: list[bool]) -> None:
    scope: dict[str, Any] = {}
    async with asyncio.timeout(0.01) as limit:
        set_deadline(scope, limit)
        try:
            await asyncio.Event().wait()
        finally:
            found.append(lift_deadline(scope))


def test_no_minute_has_more_than_the_limit() -> None:
    minute, passed = SlidingMinute(), []
    now = 0.0
    while now < 300:
        if not minute.wait(20, now):
            minute.take(now)
            passed.append(now)
        now += 0.5
    assert len(passed) == 20 * 5
    for first in passed:
        assert sum(first <= each < first + 60 for each in passed) <= 20


def test_the_wait_ends_when_the_oldest_of_the_last_minute_is_gone() -> None:
    minute = SlidingMinute()
    for at in (0.0, 10.0, 20.0):
        minute.take(at)
    assert minute.wait(3, 25.0) == 35
    assert minute.wait(3, 59.9) > 0
    assert minute.wait(3, 60.0) == 0


def test_a_limit_that_was_lowered_waits_until_so_few_are_left() -> None:
    minute = SlidingMinute()
    for at in (0.0, 10.0, 20.0):
        minute.take(at)
    assert minute.wait(1, 30.0) == 50


def test_it_is_idle_a_minute_after_the_last() -> None:
    minute = SlidingMinute()
    assert minute.idle(0.0)
    minute.take(1.0)
    assert not minute.idle(60.9)
    assert minute.idle(61.0)


def test_how_many_there_are_and_when_the_oldest_leaves() -> None:
    minute = SlidingMinute()
    assert minute.current(100.0) == (0, None)
    for now in (100.0, 110.0, 125.0):
        minute.take(now)
    assert minute.current(130.0) == (3, 30.0)
    assert minute.current(159.0) == (3, 1.0)
    assert minute.current(160.0) == (2, 10.0)
    assert minute.current(185.0) == (0, None)
