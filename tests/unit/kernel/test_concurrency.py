import asyncio

import pytest

from tests.support.loop_time import LoopTime
from tollhouse.kernel.concurrency import IdleDeadline


async def test_what_goes_on_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    async with IdleDeadline(60) as deadline:
        for _ in range(3):
            await time.advance(40)
            deadline.reset()
    assert not deadline.expired()


async def test_what_goes_on_no_more_is_ended() -> None:
    deadline = IdleDeadline(0.01)
    with pytest.raises(TimeoutError):
        await forever(deadline)
    assert deadline.expired()
    deadline.reset()  # somebody may be late


async def test_another_timeout_is_not_its_own() -> None:
    deadline = IdleDeadline(60)
    with pytest.raises(TimeoutError):
        await failing(deadline)
    assert not deadline.expired()


async def forever(deadline: IdleDeadline) -> None:
    async with deadline:
        deadline.reset()
        await asyncio.Event().wait()


async def failing(deadline: IdleDeadline) -> None:
    async with deadline:
        raise TimeoutError
