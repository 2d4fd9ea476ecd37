"""`kill -9` of the ingest child and of the gateway that it works for."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.component.batches.batch_receiver import never_ending
from tests.support.child_processes import is_running, own_children
from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.batches import BatchLimits, BatchReceiver, IngestChildGone
from tests.unit.batches.ingest.bodies import in_pieces, items, submitted

PROJECT = Path(__file__).parents[3]
BODY = submitted(*items(4_000))
POLL_SECONDS = 0.005
KILLS = 3
KILLS_IN_SOAK = 100


async def until(happens: Callable[[], bool]) -> None:
    while not happens():
        await asyncio.sleep(POLL_SECONDS)


def start_gateway(how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.component.batches.batch_receiver", how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT)


async def test_a_killed_child_is_an_error_that_leaves_nothing() -> None:
    blobs, before = MemoryBlobs(), own_children()
    receiver = BatchReceiver(blobs, BatchLimits())
    with capture_logs() as logs:
        receiving = asyncio.create_task(receiver.receive(never_ending(BODY[:-1]), "batches/1"))
        await blobs.has_put.wait()
        [child] = own_children() - before
        os.kill(child, signal.SIGKILL)
        with pytest.raises(IngestChildGone):
            await receiving
    assert [each["reason"] for each in logs] == ["it ended with code -9"]
    assert blobs.blobs == {}
    assert own_children() <= before


async def kill_at_random() -> None:
    blobs, before = MemoryBlobs(), own_children()
    receiver = BatchReceiver(blobs, BatchLimits())
    receiving = asyncio.create_task(receiver.receive(in_pieces(BODY), "batches/1"))
    await until(lambda: bool(own_children() - before))
    await asyncio.sleep(random.uniform(0, 0.4))
    for child in own_children() - before:
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(child, signal.SIGKILL)
    try:
        received = await receiving
    except IngestChildGone:
        assert blobs.blobs == {}
    else:
        assert len(blobs.blobs) == len(received.chunks)
    assert own_children() <= before


async def test_a_child_that_is_killed_at_random_leaves_all_or_nothing() -> None:
    for _ in range(KILLS):
        await kill_at_random()


@pytest.mark.soak
async def test_many_that_are_killed_leave_all_or_nothing(soak_factor: int) -> None:
    for _ in range(KILLS_IN_SOAK * soak_factor):
        await kill_at_random()


@pytest.mark.parametrize("how", ["waiting", "writing"])
async def test_a_child_ends_with_its_gateway(how: str) -> None:
    with start_gateway(how) as gateway:
        assert gateway.stdout is not None
        child = int(gateway.stdout.readline())
        assert is_running(child)
        gateway.kill()
    await until(lambda: not is_running(child))
