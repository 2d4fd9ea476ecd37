"""Virtual time passes, whatever waits for it."""

import asyncio

from tests.unit.batches.virtual_time import VirtualClock, run_virtually
from tollhouse.kernel.concurrency import wait_for_event

SOON = 11.599999999999998
"""The last instant before 11.6 that a float can tell."""


def test_hours_pass_at_once() -> None:
    async def scenario() -> float:
        await asyncio.sleep(7200)
        return VirtualClock().monotonic()

    assert 7200 <= run_virtually(scenario()) < 7201


def test_time_passes_while_two_tasks_wait_for_less_than_the_loop_can_tell() -> None:
    async def wait_until_due(turns: int) -> None:
        await asyncio.sleep(SOON)
        for _ in range(turns):
            await asyncio.sleep(0)
        for _ in range(1_000):
            seconds = 11.6 - VirtualClock().monotonic()
            if seconds <= 0:
                return
            await wait_for_event(asyncio.Event(), seconds)
        raise AssertionError("time stands still")

    async def scenario() -> None:
        await asyncio.gather(*(wait_until_due(turns) for turns in range(4)))

    run_virtually(scenario())
