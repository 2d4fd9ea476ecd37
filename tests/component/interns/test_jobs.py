import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.support.slow_start import SlowStart, is_gone
from tests.support.waiting import until, wait_for_event
from tollhouse.interns.runtimes.filesize import descendants
from tollhouse.interns.workspaces import jobs as jobs_module
from tollhouse.interns.workspaces.archive_format import pack
from tollhouse.interns.workspaces.contents import digest, measure
from tollhouse.interns.workspaces.jobs import JobBroken, JobRefused, WorkspaceJobs

_MARKER = b'"memory_bytes"'
"""Part of every job's command line."""
_BLOCK_BYTES = 4096


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").write_text("content")
    return folder


@pytest.fixture
def large(workspace: Path) -> Path:
    """More than fits between a worker and its server."""
    (workspace / "large").write_bytes(os.urandom(8 * 1024 * 1024))
    return workspace


@pytest.fixture
def jobs() -> WorkspaceJobs:
    return WorkspaceJobs()


@pytest.fixture
def digests_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets another program stand where digests are made."""

    def replace(code: str) -> None:
        (tmp_path / "others").mkdir()
        (tmp_path / "others" / "digest.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(jobs_module, "_WORKER", "others.digest")

    return replace


def nobody() -> None:
    """Nobody wants to know that a job goes on."""


async def all_of(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([each async for each in pieces])


@contextmanager
def holding_deleted_file(folder: Path) -> Iterator[int]:
    """Run a process that holds a deleted file of one block open."""
    file = folder / "deleted"
    with file.open("w+b") as held:
        held.write(bytes(_BLOCK_BYTES))
        held.flush()
        file.unlink()
        with subprocess.Popen(["sleep", "600"], stdin=held) as process:
            yield process.pid
            process.kill()


def running_jobs() -> list[int]:
    """Return the ids of this process's running jobs."""
    return [each for each in descendants(os.getpid()) if _MARKER in command(each)]


def command(process: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


async def wait_for_jobs(count: int = 1) -> list[int]:
    """Wait until so many jobs run."""
    return await until(
        lambda: found if len(found := running_jobs()) >= count else None, pause=0.002
    )


def environment_of(process: int) -> bytes:
    return Path(f"/proc/{process}/environ").read_bytes()


def framed(message: dict[str, object]) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def opened_by(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


async def test_a_job_finds_what_this_process_would(workspace: Path, jobs: WorkspaceJobs) -> None:
    assert await jobs.digest(workspace, nobody) == digest(workspace)
    assert await jobs.digest(workspace, nobody, flush=True) == digest(workspace)
    with holding_deleted_file(workspace) as process:
        found = await jobs.measure(workspace, [process], nobody)
    assert found.disk_bytes == measure(workspace, 10).disk_bytes + _BLOCK_BYTES
    assert await all_of(jobs.pack(workspace, nobody)) == b"".join(pack(workspace))


async def test_a_job_that_nobody_waits_for_is_killed(
    workspace: Path, jobs: WorkspaceJobs, digests_by: Callable[[str], None]
) -> None:
    digests_by("import time; time.sleep(600)")
    digesting = asyncio.create_task(jobs.digest(workspace, nobody))
    await wait_for_jobs()
    digesting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await digesting
    assert running_jobs() == []


async def test_a_job_that_is_cancelled_while_it_starts_has_no_process(
    large: Path, jobs: WorkspaceJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch)
    digesting = asyncio.create_task(jobs.digest(large, nobody))
    await wait_for_event(slow.begun)
    digesting.cancel()
    slow.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await digesting
    assert is_gone(slow.child)


async def test_an_archive_that_nobody_draws_any_more_ends_its_job(
    large: Path, jobs: WorkspaceJobs
) -> None:
    packing = jobs.pack(large, nobody)
    await anext(packing)
    assert len(running_jobs()) == 1
    await packing.aclose()
    assert running_jobs() == []


async def test_a_job_that_was_killed_has_no_end(large: Path, jobs: WorkspaceJobs) -> None:
    packing = jobs.pack(large, nobody)
    await anext(packing)
    os.kill(running_jobs()[0], signal.SIGKILL)
    with pytest.raises(JobBroken):
        await all_of(packing)


async def test_only_so_many_run_at_a_time(large: Path) -> None:
    jobs = WorkspaceJobs(at_once={"pack": 2})
    packing = [jobs.pack(large, nobody) for _ in range(4)]
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


async def test_who_has_waited_longest_is_next(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_TURN_SECONDS", 0.1)
    jobs = WorkspaceJobs(at_once={"pack": 1})
    first = jobs.pack(large, nobody)
    await anext(first)
    alive = asyncio.Event()
    longest, shorter = jobs.pack(large, alive.set), jobs.pack(large, nobody)
    waiting = asyncio.create_task(anext(longest))
    await asyncio.sleep(0)
    monkeypatch.setattr(jobs_module, "_TURN_SECONDS", 600)
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
    jobs = WorkspaceJobs(at_once={"pack": 1})
    first = jobs.pack(large, nobody)
    await anext(first)
    waiting = asyncio.create_task(anext(jobs.pack(large, nobody)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await first.aclose()
    for _ in range(2):
        next_one = jobs.pack(large, nobody)
        await anext(next_one)
        await next_one.aclose()


async def test_a_job_has_no_more_memory_than_it_may(workspace: Path) -> None:
    for number in range(10_000):
        (workspace / f"{number:0200}").touch()
    jobs = WorkspaceJobs(memory_bytes=1024 * 1024)  # beyond what Python has by then
    with pytest.raises(JobRefused, match="too many, or their names too long"):
        await jobs.digest(workspace, nobody)


async def test_a_workspace_that_is_missing_is_an_error_of_the_system(
    tmp_path: Path, jobs: WorkspaceJobs
) -> None:
    with pytest.raises(FileNotFoundError):
        await jobs.digest(tmp_path / "missing", nobody)


async def test_one_that_changes_all_the_time_has_a_digest_or_an_error(
    workspace: Path, jobs: WorkspaceJobs
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
            assert len(await jobs.digest(workspace, nobody)) == 64
        except OSError:
            continue
    going_on.set()
    await changing
    assert running_jobs() == []


@pytest.mark.parametrize(
    "said",
    [
        framed({"type": "other"}),
        b"\xff\xff\xff\xff",
        framed({"type": "alive"})[:-1],
        framed({"type": "found"}),
        framed({"type": "found", "result": 3}),
        framed({"type": "found", "result": [1, 2]}),
        b"\0\0\0\1\xc1",
        b"",
    ],
    ids=[
        "unknown",
        "too long",
        "cut off",
        "empty",
        "no result",
        "another's",
        "no message",
        "nothing",
    ],
)
async def test_who_does_not_keep_to_the_protocol_is_not_believed(
    said: bytes, workspace: Path, digests_by: Callable[[str], None]
) -> None:
    digests_by(f"import os; os.write(1, {said!r})")
    with pytest.raises(JobBroken):
        await WorkspaceJobs().digest(workspace, nobody)


def test_a_job_ends_when_its_server_is_gone(large: Path) -> None:
    order = f'{{"job": "pack", "folder": "{large}", "memory_bytes": 536870912}}'
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tollhouse.interns.workspaces.worker", order],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(30) == 0


async def test_a_job_knows_nothing_of_the_server(
    large: Path, jobs: WorkspaceJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOLLHOUSE_SECRET", "do not pass on")
    packing = jobs.pack(large, nobody)
    await anext(packing)
    (process,) = running_jobs()
    assert b"do not pass on" not in environment_of(process)
    assert os.getsid(process) == process
    assert opened_by(process) <= 6  # the standard ones, two folders and the file that it reads
    await packing.aclose()
