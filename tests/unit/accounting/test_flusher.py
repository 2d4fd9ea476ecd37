"""Whoever waits shares a flush that began after it came."""

import asyncio
import threading

import pytest

from tollhouse.accounting.settlement.settler import Flusher


class Disk:
    """Flushes when it is let, and counts."""

    def __init__(self) -> None:
        self.flushes = 0
        self.begun = threading.Semaphore(0)
        self.let = threading.Semaphore(0)
        self.failure: Exception | None = None

    def flush(self) -> None:
        self.flushes += 1
        self.begun.release()
        self.let.acquire()
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def begun(disk: Disk) -> None:
    await asyncio.to_thread(disk.begun.acquire)


async def test_who_comes_during_a_flush_waits_for_the_next_one(disk: Disk) -> None:
    flusher = Flusher(disk.flush)
    first = asyncio.create_task(flusher.flushed())
    await begun(disk)
    late = [asyncio.create_task(flusher.flushed()) for _ in range(5)]
    await asyncio.sleep(0)
    disk.let.release()
    await first
    assert not any(each.done() for each in late)
    disk.let.release()
    await asyncio.gather(*late)
    assert disk.flushes == 2


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
async def test_a_flush_that_fails_fails_those_who_wait_for_it_alone(
    disk: Disk, kind: type[Exception]
) -> None:
    flusher = Flusher(disk.flush)
    disk.failure = kind("the disk is gone")
    disk.let.release()
    with pytest.raises(kind, match="gone"):
        await flusher.flushed()
    disk.failure = None
    disk.let.release()
    await flusher.flushed()


async def test_closing_waits_for_the_flush_though_nobody_else_does(disk: Disk) -> None:
    flusher = Flusher(disk.flush)
    waiting = asyncio.create_task(flusher.flushed())
    await begun(disk)
    waiting.cancel()
    closing = asyncio.create_task(flusher.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    disk.let.release()
    await closing
    assert waiting.cancelled()
