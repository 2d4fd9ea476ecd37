import asyncio

import pytest

from tests.loop_time import LoopTime
from tollhouse.kernel.waiting import IdleDeadline


async def test_what_goes_on_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    async with IdleDeadline(60) as patience:
        for _ in range(3):
            await time.advance(40)
            patience.reset()
    assert not patience.expired()


async def test_what_goes_on_no_more_is_ended() -> None:
    patience = IdleDeadline(0.01)
    with pytest.raises(TimeoutError):
        await forever(patience)
    assert patience.expired()
    patience.reset()  # somebody may be late


async def test_another_timeout_is_not_its_own() -> None:
    patience = IdleDeadline(60)
    with pytest.raises(TimeoutError):
        await failing(patience)
    assert not patience.expired()


async def forever(patience: IdleDeadline) -> None:
    async with patience:
        patience.reset()
        await asyncio.Event().wait()


async def failing(patience: IdleDeadline) -> None:
    async with patience:
        raise TimeoutError
