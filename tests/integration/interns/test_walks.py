import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.integration.interns.job_processes import running_jobs, wait_for_jobs
from tests.slow_start import SlowStart, is_gone
from tests.waiting import wait_for_event
from tollhouse.interns.archive import pack
from tollhouse.interns.size import measure
from tollhouse.interns.walks import walker as walker_module
from tollhouse.interns.walks.walker import WalkBroken, Walker, WalkRefused
from tollhouse.interns.workspace import digest


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("content")
    return folder


@pytest.fixture
def large(workspace: Path) -> Path:
    """More than fits between a walk and its server."""
    (workspace / "large").write_bytes(os.urandom(8 * 1024 * 1024))
    return workspace


@pytest.fixture
def walker() -> Walker:
    return Walker()


@pytest.fixture
def digests_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets another program stand where digests are made."""

    def replace(code: str) -> None:
        (tmp_path / "others").mkdir()
        (tmp_path / "others" / "digest.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(walker_module, "_PROGRAM", "others")

    return replace


def nobody() -> None:
    """Nobody wants to know that a walk goes on."""


async def all_of(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([each async for each in pieces])


def environment_of(process: int) -> bytes:
    return Path(f"/proc/{process}/environ").read_bytes()


def opened_by(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


async def test_a_walk_finds_what_this_process_would(workspace: Path, walker: Walker) -> None:
    assert await walker.digest(workspace, nobody) == digest(workspace)
    assert await walker.digest(workspace, nobody, flush=True) == digest(workspace)
    assert await walker.measure(workspace, [os.getpid()], nobody) == measure(workspace, 10)
    assert await all_of(walker.pack(workspace, nobody)) == b"".join(pack(workspace))


async def test_a_walk_that_is_over_has_no_process(workspace: Path, walker: Walker) -> None:
    await walker.digest(workspace, nobody)
    assert running_jobs() == []


async def test_a_walk_that_nobody_waits_for_is_killed(
    workspace: Path, walker: Walker, digests_by: Callable[[str], None]
) -> None:
    digests_by("import time; time.sleep(600)")
    walking = asyncio.create_task(walker.digest(workspace, nobody))
    await wait_for_jobs()
    walking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await walking
    assert running_jobs() == []


async def test_a_walk_that_is_cancelled_while_it_starts_has_no_process(
    large: Path, walker: Walker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch)
    walking = asyncio.create_task(walker.digest(large, nobody))
    await wait_for_event(slow.begun)
    walking.cancel()
    slow.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await walking
    assert is_gone(slow.child)


async def test_a_walk_past_its_deadline_is_killed(large: Path, walker: Walker) -> None:
    packing = walker.pack(large, nobody)
    await anext(packing)
    (process,) = running_jobs()
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(all_of(packing), 0.05)
    assert running_jobs() == []


async def test_an_archive_that_nobody_draws_any_more_ends_its_walk(
    large: Path, walker: Walker
) -> None:
    packing = walker.pack(large, nobody)
    await anext(packing)
    assert len(running_jobs()) == 1
    await packing.aclose()
    assert running_jobs() == []


async def test_a_walk_that_was_killed_has_no_end(large: Path, walker: Walker) -> None:
    packing = walker.pack(large, nobody)
    await anext(packing)
    os.kill(running_jobs()[0], signal.SIGKILL)
    with pytest.raises(WalkBroken):
        await all_of(packing)


async def test_only_so_many_walk_at_a_time(large: Path) -> None:
    walker = Walker(at_once={"pack": 2})
    packing = [walker.pack(large, nobody) for _ in range(4)]
    drawing = [asyncio.create_task(anext(each)) for each in packing]
    done, waiting = await asyncio.wait(drawing[:2])
    assert (len(done), waiting, len(running_jobs())) == (2, set(), 2)
    await packing[0].aclose()
    await drawing[2]
    assert len(running_jobs()) == 2
    drawing[3].cancel()
    await asyncio.gather(drawing[3], return_exceptions=True)
    for each in packing[1:]:
        await each.aclose()
    assert running_jobs() == []


async def test_who_waits_for_a_turn_goes_on(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walker_module, "_TURN_SECONDS", 0.01)
    walker = Walker(at_once={"pack": 1})
    first = walker.pack(large, nobody)
    await anext(first)
    alive = asyncio.Event()
    second = walker.pack(large, alive.set)
    waiting = asyncio.create_task(anext(second))
    await wait_for_event(alive)
    assert not waiting.done()
    await first.aclose()
    await waiting
    await second.aclose()


async def test_who_has_waited_longest_is_next(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walker_module, "_TURN_SECONDS", 0.1)
    walker = Walker(at_once={"pack": 1})
    first = walker.pack(large, nobody)
    await anext(first)
    alive = asyncio.Event()
    longest, shorter = walker.pack(large, alive.set), walker.pack(large, nobody)
    waiting = asyncio.create_task(anext(longest))
    await asyncio.sleep(0)
    monkeypatch.setattr(walker_module, "_TURN_SECONDS", 600)
    late = asyncio.create_task(anext(shorter))
    await alive.wait()
    await asyncio.sleep(0)
    await first.aclose()
    await waiting
    assert not late.done()
    await longest.aclose()
    await late
    await shorter.aclose()


async def test_who_waits_for_a_turn_no_more_takes_none(large: Path) -> None:
    walker = Walker(at_once={"pack": 1})
    first = walker.pack(large, nobody)
    await anext(first)
    waiting = asyncio.create_task(anext(walker.pack(large, nobody)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await first.aclose()
    for _ in range(2):
        next_one = walker.pack(large, nobody)
        await anext(next_one)
        await next_one.aclose()


async def test_a_walk_has_no_more_memory_than_it_may(workspace: Path) -> None:
    for number in range(10_000):
        (workspace / f"{number:0200}").touch()
    walker = Walker(memory_bytes=1024 * 1024)  # beyond what Python has by then
    with pytest.raises(WalkRefused, match="too many, or their names too long"):
        await walker.digest(workspace, nobody)


async def test_a_workspace_that_is_missing_is_an_error_of_the_system(
    tmp_path: Path, walker: Walker
) -> None:
    with pytest.raises(FileNotFoundError):
        await walker.digest(tmp_path / "missing", nobody)


async def test_one_that_changes_all_the_time_has_a_digest_or_an_error(
    workspace: Path, walker: Walker
) -> None:
    going_on = asyncio.Event()

    async def change() -> None:
        number = 0
        while not going_on.is_set():
            number += 1
            (workspace / f"new-{number}").write_bytes(b"x" * 100_000)
            (workspace / "inner").rename(workspace / "other")
            (workspace / "other").rename(workspace / "inner")
            (workspace / f"new-{number}").unlink()
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    for _ in range(5):
        try:
            assert len(await walker.digest(workspace, nobody)) == 64
        except OSError:
            continue
    going_on.set()
    await changing
    assert running_jobs() == []


@pytest.mark.parametrize(
    "said",
    [b"?\0\0\0\0", b"+\xff\xff\xff\xff", b".\0\0", b"=\0\0\0\2{}", b"=\0\0\0\1{", b""],
    ids=["unknown", "too long", "cut off", "empty", "no JSON", "nothing"],
)
async def test_who_does_not_keep_to_the_protocol_is_not_believed(
    said: bytes, workspace: Path, digests_by: Callable[[str], None]
) -> None:
    digests_by(f"import os; os.write(1, {said!r})")
    with pytest.raises(WalkBroken):
        await Walker().digest(workspace, nobody)


def test_a_walk_ends_when_its_server_is_gone(large: Path) -> None:
    order = f'{{"folder": "{large}", "memory_bytes": 536870912}}'
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tollhouse.interns.walks.pack", order],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(30) == 0


async def test_a_walk_knows_nothing_of_the_server(
    large: Path, walker: Walker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLHOUSE_SECRET", "do not pass on")
    packing = walker.pack(large, nobody)
    await anext(packing)
    (process,) = running_jobs()
    assert b"do not pass on" not in environment_of(process)
    assert os.getsid(process) == process
    assert opened_by(process) <= 6  # the standard ones, two folders and the file that it reads
    await packing.aclose()
