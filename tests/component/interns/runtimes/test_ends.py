"""What is left of a sandbox by bubblewrap when it, or its server, has ended."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from tests.component.interns.runtimes.sandbox_runner import DAEMON_COMMAND, SandboxRunner
from tests.support.waiting import take_turns
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock

pytestmark = pytest.mark.sandbox

_SECONDS = 30
_SERVER = """
import asyncio, subprocess, sys
from pathlib import Path
from tests.component.interns.runtimes.sandbox_runner import DAEMON_COMMAND, SandboxRunner
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock

def busy():
    for _ in range(3):
        subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL)
    return Path("/proc/self/ns/pid").stat().st_ino

async def main():
    data = Path(sys.argv[1])
    boxes = SandboxRunner(BubblewrapRuntime(data, SystemClock(), DAEMON_COMMAND), data, "killed")
    inside = await boxes.run(busy)
    print(await inside.result(), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def in_namespace(inode: int) -> list[int]:
    """Return all processes of the host that live in a process namespace.

    One that has died and waits to be buried by the host's first process is none.
    """
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if (folder / "ns" / "pid").stat().st_ino == inode and "\nState:\tZ" not in (
                    folder / "status"
                ).read_text():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def groups_of(runtime: BubblewrapRuntime) -> list[Path]:
    return list(runtime._cgroups.existing())  # noqa: SLF001 - of nobody's interest but a test's


async def test_when_stopping_returns_the_namespace_is_empty_and_no_group_is_left(
    boxes: SandboxRunner, bubblewrap: BubblewrapRuntime
) -> None:
    def busy() -> int:
        for _ in range(5):
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return Path("/proc/self/ns/pid").stat().st_ino

    inside = await boxes.run(busy)
    inode = await inside.result()
    assert len(in_namespace(inode)) >= 7
    await inside.sandbox.stop(0)
    assert in_namespace(inode) == []
    assert groups_of(bubblewrap) == []


async def test_a_daemon_that_ends_takes_its_orphans_along(boxes: SandboxRunner) -> None:
    def leaves() -> None:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path("inode").write_text(str(Path("/proc/self/ns/pid").stat().st_ino))
        os._exit(0)

    inside = await boxes.run(leaves)
    assert await inside.sandbox.wait() == "it ended"
    assert in_namespace(int((inside.workspace / "inode").read_text())) == []


async def test_a_server_killed_leaves_no_process_and_its_groups_are_swept(data: Path) -> None:
    source = data / "server.py"
    source.write_text(_SERVER)
    with subprocess.Popen(  # noqa: ASYNC220 - nobody else waits here
        (sys.executable, source, data),
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    ) as server:
        assert server.stdout is not None
        inode = int(await asyncio.to_thread(server.stdout.readline))
        assert in_namespace(inode)
        server.send_signal(signal.SIGKILL)
    async with asyncio.timeout(_SECONDS):
        while in_namespace(inode):
            await asyncio.sleep(0.01)
    runtime = BubblewrapRuntime(data, SystemClock(), DAEMON_COMMAND)
    await runtime.sweep()
    assert groups_of(runtime) == []


def test_it_runs_on_the_loop_that_the_server_runs_on(
    bubblewrap: BubblewrapRuntime, data: Path
) -> None:
    def nothing() -> str:
        return "here"

    async def start_and_stop() -> None:
        boxes = SandboxRunner(bubblewrap, data, f"uv-{os.getpid()}")
        inside = await boxes.run(nothing)
        assert await inside.result() == "here"
        await inside.sandbox.stop(5)
        assert await inside.sandbox.wait() == "it was stopped"
        await boxes.end()

    uvloop.run(start_and_stop())


async def test_a_sweep_spares_what_runs_and_what_is_anothers(
    boxes: SandboxRunner, bubblewrap: BubblewrapRuntime, tmp_path: Path
) -> None:
    def nothing() -> str:
        return "here"

    inside = await boxes.run(nothing)
    assert await inside.result() == "here"
    before = groups_of(bubblewrap)
    await BubblewrapRuntime(tmp_path, SystemClock(), DAEMON_COMMAND).sweep()
    await bubblewrap.sweep()
    assert groups_of(bubblewrap) == before
    await inside.sandbox.stop(5)
    assert await inside.sandbox.wait() == "it was stopped"


async def test_a_start_that_fails_leaves_nothing(
    boxes: SandboxRunner, bubblewrap: BubblewrapRuntime
) -> None:
    def nothing() -> None:
        pass

    launch = boxes.launch(nothing)
    (launch.egress / "ca.pem").unlink()
    launch.egress.rmdir()
    with pytest.raises(Exception, match="operator finds more") as failed:
        await boxes.start(launch)
    assert str(boxes.folder) not in str(failed.value)
    assert groups_of(bubblewrap) == []
    launch.egress.mkdir(mode=0o700)
    assert await (await boxes.start(launch)).result() is None


@pytest.mark.parametrize("parts", [8, pytest.param(15, marks=pytest.mark.soak)])
async def test_a_start_that_is_cancelled_leaves_nothing(
    boxes: SandboxRunner, bubblewrap: BubblewrapRuntime, parts: int
) -> None:
    def nothing() -> None:
        pass

    whole, starting = 0, asyncio.create_task(boxes.start(boxes.launch(nothing)))
    while not starting.done():
        whole += 1
        await asyncio.sleep(0)
    await starting.result().sandbox.stop(0)
    for part in range(parts):
        starting = asyncio.create_task(boxes.start(boxes.launch(nothing)))
        await take_turns(whole * part // parts)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        if not starting.cancelled():
            await starting.result().sandbox.stop(0)
    assert groups_of(bubblewrap) == []
