import asyncio
from typing import Any

import pytest

from tests.support.loop_time import LoopTime
from tests.support.waiting import take_turns
from tollhouse.kernel.request_scope import lift_deadline, set_deadline


async def test_a_deadline_that_was_lifted_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time = LoopTime(monkeypatch)
    scope: dict[str, Any] = {}
    async with asyncio.timeout(60) as limit:
        set_deadline(scope, limit)
        assert lift_deadline(scope)
        await time.advance(61)
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
