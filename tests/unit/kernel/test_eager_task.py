"""Coroutines that run in their caller's stack, and become tasks where they need one."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tollhouse.kernel.eager_task import EagerTask, Waiter, in_task


class Run:
    """A coroutine under way, started by a callback, as a connection would."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], *, as_task: bool = False) -> None:
        self.ends: list[BaseException | None] = []
        loop = asyncio.get_running_loop()
        self.task = EagerTask(coroutine, loop, self.ends.append)
        self.started = loop.create_future()
        loop.call_soon(self._start, self.task.start_task if as_task else self.task.start)

    def _start(self, start: Callable[[], None]) -> None:
        start()
        self.started.set_result(None)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def called_back(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(function)


@pytest.fixture(params=[False, True], ids=["callbacks", "task"])
def as_task(request: pytest.FixtureRequest) -> bool:
    return request.param


async def test_each_wake_ends_one_wait(as_task: bool) -> None:  # noqa: FBT001
    waiter, waits = Waiter(asyncio.get_running_loop()), list[int]()

    async def work() -> None:
        for number in range(3):
            await waiter
            waits.append(number)

    run = Run(work(), as_task=as_task)
    for number in range(3):
        await turns()
        assert waits == list(range(number))
        called_back(waiter.wake)
    await turns()
    assert (waits, run.ends) == ([0, 1, 2], [None])


async def test_what_it_raises_is_told(as_task: bool) -> None:  # noqa: FBT001
    error = ValueError("x")

    async def work() -> None:
        raise error

    run = Run(work(), as_task=as_task)
    await turns()
    assert run.ends == [error]


@pytest.mark.parametrize("place", ["waiter", "task", "future"])
async def test_a_cancelled_one_can_finish_its_work(place: str) -> None:
    loop = asyncio.get_running_loop()
    waiter, done = Waiter(loop), list[str]()

    async def work() -> None:
        try:
            if place == "task":
                await in_task()
            await (asyncio.Event().wait() if place == "future" else waiter)
        except asyncio.CancelledError:
            await waiter
            done.append("finished")

    run = Run(work())
    await turns()
    run.task.cancel()
    await turns()
    assert (done, run.ends) == ([], [])
    called_back(waiter.wake)
    await turns()
    assert (done, run.ends) == (["finished"], [None])


@pytest.mark.parametrize("place", ["task", "future"])
async def test_one_that_is_cancelled_the_moment_it_becomes_a_task_can_finish_its_work(
    place: str,
) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            await (in_task() if place == "task" else asyncio.Event().wait())
            done.append("went on")
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            done.append("finished")

    run = Run(work())
    called_back(run.task.cancel)  # before the task's first step
    await turns()
    assert (done, run.ends) == (["finished"], [None])


async def test_one_that_is_cancelled_before_it_began_does_nothing(as_task: bool) -> None:  # noqa: FBT001
    done: list[str] = []

    async def work() -> None:
        done.append("begun")

    ends: list[BaseException | None] = []
    task = EagerTask(work(), asyncio.get_running_loop(), ends.append)
    if as_task:
        task.start_task()
    else:
        task.start()
    task.cancel()
    await turns()
    assert done == []
    assert [type(each) for each in ends] == [asyncio.CancelledError]


async def test_a_cancelled_one_is_not_woken_by_what_it_waited_for() -> None:
    waiter, done = Waiter(asyncio.get_running_loop()), list[str]()

    async def work() -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            done.append("cancelled")
            await asyncio.Event().wait()

    run = Run(work())
    await turns()
    run.task.cancel()
    await turns()
    called_back(waiter.wake)
    await turns()
    assert (done, run.ends) == (["cancelled"], [])
    run.task.cancel()
    await turns()
    assert [type(each) for each in run.ends] == [asyncio.CancelledError]
