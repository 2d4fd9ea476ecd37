"""The pool of workers: turns, ends, and what becomes of a worker that dies."""

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.seams.inference import StepTooLong, WorkerGone, WorkerPool
from tests.support.waiting import take_turns
from tollhouse.kernel.errors import Bug


async def ended(pid: int) -> None:
    async with asyncio.timeout(10):
        while _runs(pid):
            await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_accounts_take_turns() -> None:
    pool, order = WorkerPool(1), list[str]()

    async def ask(owner: str) -> None:
        await pool.run(owner, os.getpid)
        order.append(owner)

    await asyncio.gather(*[ask("many") for _ in range(6)], ask("one"))
    await pool.close()
    assert order.index("one") == 1


async def test_a_worker_that_was_killed_is_replaced() -> None:
    pool = WorkerPool(1)
    first = await pool.run("a", os.getpid)
    os.kill(first, signal.SIGKILL)
    second = await pool.run("a", os.getpid)
    assert second not in {first, os.getpid()}
    await pool.close()


async def test_a_step_that_kills_its_worker_is_given_up() -> None:
    pool = WorkerPool(1)
    with pytest.raises(WorkerGone):
        await pool.run("a", os._exit, 1)
    assert await pool.run("a", os.getpid)
    await pool.close()


async def test_a_step_that_takes_too_long_ends_with_its_worker() -> None:
    pool = WorkerPool(1, step_seconds=3)
    pid = await pool.run("a", os.getpid)
    with pytest.raises(StepTooLong):
        await pool.run("a", time.sleep, 600)
    await ended(pid)
    await pool.close()


async def test_a_fault_says_where_it_was_and_nothing_of_the_body() -> None:
    pool = WorkerPool(1)
    with pytest.raises(Bug) as caught:
        await pool.run("a", int, "a body")
    assert "a body" not in str(caught.value)
    await pool.close()


async def test_a_step_that_nobody_waits_for_does_not_hold_up_the_next() -> None:
    pool = WorkerPool(1)
    await pool.run("a", os.getpid)
    left = [asyncio.ensure_future(pool.run("a", time.sleep, 600)) for _ in range(3)]
    await asyncio.sleep(0)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    async with asyncio.timeout(20):
        assert await pool.run("a", os.getpid)
    await pool.close()


async def test_one_worker_is_left_for_the_others_however_long_an_account_s_steps_take() -> None:
    pool = WorkerPool(3)
    held = [asyncio.ensure_future(pool.run("a", time.sleep, 600)) for _ in range(4)]
    pids = {await pool.run(owner, os.getpid) for owner in "bcb"}
    assert len(pids) == 1
    assert not any(step.done() for step in held)
    await pool.close()
    await asyncio.gather(*held, return_exceptions=True)


async def test_workers_end_with_the_pool() -> None:
    pool = WorkerPool(2)
    pids = await asyncio.gather(*[pool.run(owner, os.getpid) for owner in "ab"])
    waiting = asyncio.ensure_future(pool.run("a", time.sleep, 600))
    await take_turns()
    await pool.close()
    with pytest.raises(WorkerGone):
        await waiting
    for pid in pids:
        await ended(pid)


async def test_a_worker_ends_with_the_pool_amid_its_first_step(tmp_path: Path) -> None:
    pool, size, pipe = WorkerPool(1), 1_000_000, tmp_path / "pipe"
    os.mkfifo(pipe)
    step = asyncio.ensure_future(pool.run("a", pipe.write_bytes, bytes(size)))
    with await asyncio.to_thread(pipe.open, "rb") as written:
        await pool.close()
        with pytest.raises(WorkerGone):
            await step
        assert len(written.read()) < size


async def test_a_step_that_cannot_be_passed_on_fails_and_the_next_is_done() -> None:
    pool = WorkerPool(1)
    async with asyncio.timeout(20):
        with pytest.raises(Bug):
            await pool.run("a", lambda: "no function of a module")
        assert await pool.run("a", os.getpid)
    await pool.close()
