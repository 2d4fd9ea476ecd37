"""What a program says is waited for, but not for ever; and programs stand still when told to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tollhouse.interns.runtimes import sandbox_process
from tollhouse.interns.runtimes.sandbox_process import StderrTail, paused

if TYPE_CHECKING:
    from collections.abc import Iterator


async def test_what_was_said_is_told_when_all_have_left() -> None:
    tail = StderrTail()
    telling = asyncio.create_task(tail.text())
    tail.data_received(b"first, ")
    await asyncio.sleep(0)
    tail.data_received(b"last\n")
    tail.connection_lost(None)
    assert await telling == "first, last"


async def test_somebody_who_never_leaves_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox_process, "_STDERR_SECONDS", 0.01)
    tail = StderrTail()
    tail.data_received(b"refused")
    async with asyncio.timeout(30):
        assert await tail.text() == "refused"


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def until(process: int, *wanted: str) -> None:
    ends = time.monotonic() + 30
    while state(process) not in wanted:
        assert time.monotonic() < ends
        time.sleep(0.001)


@pytest.fixture
def family() -> Iterator[list[int]]:
    """A shell, another one below it, and two children of that; the second of them is stopped."""
    script = "sleep 600 & first=$!; sleep 600 & kill -STOP $!; echo $$ $first $!; wait"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"/bin/sh -c '{script}'; true"], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    below = [int(each) for each in shell.stdout.readline().split()]
    until(below[2], "T")
    yield [shell.pid, *below]
    for each in (shell.pid, *below):  # from above, so that none ends before it is killed
        os.kill(each, signal.SIGKILL)
    shell.wait()
    shell.stdout.close()


def test_all_below_a_process_stand_still_for_a_while(family: list[int]) -> None:
    first, shell, child, stopped = family
    with paused(first):
        until(shell, "T")
        until(child, "T")
        until(first, "S")  # it has not been stopped, though it may still be at work
    until(shell, "S")
    until(child, "S")
    assert state(stopped) == "T"


def test_they_go_on_when_what_was_done_meanwhile_fails(family: list[int]) -> None:
    with pytest.raises(BlockingIOError), paused(family[0]):
        raise BlockingIOError
    until(family[2], "S")
