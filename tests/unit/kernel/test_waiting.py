import asyncio

import pytest

from tests.loop_time import LoopTime
from tollhouse.kernel.waiting import Patience


async def test_what_goes_on_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    async with Patience(60) as patience:
        for _ in range(3):
            await time.advance(40)
            patience.goes_on()
    assert not patience.is_over()


async def test_what_goes_on_no_more_is_ended() -> None:
    patience = Patience(0.01)
    with pytest.raises(TimeoutError):
        await forever(patience)
    assert patience.is_over()
    patience.goes_on()  # somebody may be late


async def test_another_timeout_is_not_its_own() -> None:
    patience = Patience(60)
    with pytest.raises(TimeoutError):
        await failing(patience)
    assert not patience.is_over()


async def forever(patience: Patience) -> None:
    async with patience:
        patience.goes_on()
        await asyncio.Event().wait()


async def failing(patience: Patience) -> None:
    async with patience:
        raise TimeoutError
