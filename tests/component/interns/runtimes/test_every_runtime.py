"""What every runtime promises."""

import asyncio
import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.component.interns.runtimes.sandbox_runner import SandboxedCall, SandboxRunner, nothing
from tests.support.slow_start import SlowStart, is_gone
from tests.support.waiting import wait_for_event
from tollhouse.interns.runtimes.base import RuntimeFailed
from tollhouse.interns.runtimes.filesize import descendants


def runs(process: int) -> bool:
    """Tell whether a process is there, and not just waiting to be buried."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return not stat.rpartition(")")[2].startswith(" Z")


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_daemon_is_told_its_settings_and_takes_connections(
    sandboxes: SandboxRunner,
) -> None:
    def accepts() -> str:
        with socket.socket(fileno=told["listener"]) as listener:  # noqa: F821 - the stand-in's
            client, _ = listener.accept()
            return client.recv(5).decode()

    inside = await sandboxes.run(accepts)
    with socket.create_connection(inside.launch.listener.getsockname()) as client:
        client.sendall(b"hello")
        assert await inside.result() == "hello"


async def test_it_begins_in_its_workspace_and_what_it_writes_stays(
    sandboxes: SandboxRunner,
) -> None:
    def writes() -> bool:
        Path("kept").write_text("kept")
        return Path.home() == Path.cwd()

    inside = await sandboxes.run(writes)
    assert await inside.result()
    await inside.sandbox.stop(5)
    assert (inside.workspace / "kept").read_text() == "kept"


def test_it_is_told_the_way_out_and_nothing_of_the_servers_environment(
    any_sandbox: SandboxedCall,
) -> None:
    def variables() -> dict[str, str]:
        return dict(os.environ)

    found = any_sandbox.ask(variables)
    assert found["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert found["SSL_CERT_FILE"].endswith("/bundle.pem")
    assert found["OPENAI_BASE_URL"] == "http://gateway.internal/v1"
    assert "leaked" not in str(found)


def test_it_gets_no_descriptor_but_its_own(any_sandbox: SandboxedCall) -> None:
    def descriptors() -> int:
        return len([each for each in Path("/proc/self/fd").iterdir() if each.exists()])

    # Standard input and output, the listener, and nothing of /proc's that is open for long.
    assert any_sandbox.ask(descriptors) <= 4


async def test_its_end_says_how(sandboxes: SandboxRunner) -> None:
    def ends() -> None:
        sys.exit(3)

    inside = await sandboxes.run(ends)
    assert await inside.sandbox.wait() == "it ended with code 3"


async def test_asked_politely_it_ends_by_itself(sandboxes: SandboxRunner) -> None:
    inside = await sandboxes.run(nothing)
    await inside.result()
    await inside.sandbox.stop(30)
    assert await inside.sandbox.wait() == "it was stopped"


async def test_deaf_to_politeness_it_is_killed(sandboxes: SandboxRunner) -> None:
    def stays() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # noqa: F821 - the stand-in's
        Path(".answer").write_text("1")
        Path(".answer").rename("answer")
        while True:
            time.sleep(1)  # noqa: F821 - the stand-in's

    inside = await sandboxes.run(stays)
    await inside.result()
    await inside.sandbox.stop(0)
    assert await inside.sandbox.wait() == "it was stopped"


async def test_stopping_twice_at_once_is_stopping(sandboxes: SandboxRunner) -> None:
    inside = await sandboxes.run(nothing)
    await asyncio.gather(inside.sandbox.stop(5), inside.sandbox.stop(0))
    await inside.sandbox.stop(0)


def test_orphans_that_end_leave_no_zombies(any_sandbox: SandboxedCall) -> None:
    def buried() -> bool:
        words = ("/bin/sh", "-c", "for each in 1 2 3; do sleep 0.1 > /dev/null & echo $!; done")
        told = subprocess.run(words, check=True, capture_output=True, text=True)
        ends = time.monotonic() + 30  # noqa: F821 - the stand-in's
        while any(Path("/proc", number).exists() for number in told.stdout.split()):
            if time.monotonic() > ends:  # noqa: F821 - the stand-in's
                return False
            time.sleep(0.01)  # noqa: F821 - the stand-in's
        return len(told.stdout.split()) == 3

    assert any_sandbox.ask(buried)


async def test_after_its_end_no_process_of_it_runs(sandboxes: SandboxRunner) -> None:
    def orphans(mark: str) -> None:
        for _ in range(3):  # of their own sessions, and nobody's children
            words = ("/bin/sh", "-c", f"(setsid sleep {mark} &) ; exit")
            subprocess.run(words, check=True)

    mark = f"86400.{os.getpid()}"
    inside = await sandboxes.run(orphans, mark)
    await inside.result()
    while running(mark) < 3:  # a shell may still be becoming its program
        await asyncio.sleep(0.01)
    await inside.sandbox.stop(5)
    assert running(mark) == 0


def running(mark: str) -> int:
    found = 0
    for folder in Path("/proc").iterdir():
        try:
            found += (folder / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode()
        except OSError:
            continue
    return found


async def test_after_its_end_no_descriptor_is_left(sandboxes: SandboxRunner) -> None:
    inside = await sandboxes.run(nothing)  # what the first start opens for good is open now
    await inside.sandbox.stop(5)
    inside.launch.listener.close()
    before = open_descriptors()
    for _ in range(3):
        inside = await sandboxes.run(nothing)
        await inside.sandbox.stop(5)
        inside.launch.listener.close()
    assert open_descriptors() <= before


async def test_one_name_runs_once_at_a_time(sandboxes: SandboxRunner) -> None:
    launch = sandboxes.launch(nothing)
    inside = await sandboxes.start(launch)
    with pytest.raises(RuntimeFailed):
        await sandboxes.runtime.start(launch)
    await inside.sandbox.stop(5)
    again = await sandboxes.start(launch)
    await again.sandbox.stop(5)


async def test_many_start_and_end_side_by_side(sandboxes: SandboxRunner) -> None:
    started = await asyncio.gather(*(sandboxes.run(nothing) for _ in range(6)))
    await asyncio.gather(*(each.result() for each in started))
    await asyncio.gather(*(each.sandbox.stop(5) for each in started))


async def test_one_that_is_cancelled_while_it_starts_leaves_no_process(
    sandboxes: SandboxRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowStart(monkeypatch)
    starting = asyncio.create_task(sandboxes.run(nothing))
    await wait_for_event(slow.begun)
    while (
        len(started := [*descendants(slow.child.pid)]) < 2
    ):  # it has begun to start what it is for
        await asyncio.sleep(0.01)
    starting.cancel()
    slow.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert is_gone(slow.child)
    async with asyncio.timeout(30):
        while any(map(runs, started)):
            await asyncio.sleep(0.01)


async def test_what_is_said_of_limits_holds_for_a_sandbox(sandboxes: SandboxRunner) -> None:
    def limits() -> object:
        return told["limits_enforced"]  # type: ignore[name-defined]  # noqa: F821 - of the stand-in

    inside = await sandboxes.run(limits)
    said = await asyncio.to_thread(sandboxes.runtime.limits_enforced, inside.launch.limits)
    assert said == inside.sandbox.limits_enforced
    assert {"open_files", "disk_bytes", "files"} <= said
    assert await inside.result() == sorted(said)


def test_open_files_are_limited_in_each_process(any_sandbox: SandboxedCall) -> None:
    def a_thousand_sockets() -> int:
        held = []
        try:
            for _ in range(1000):
                held.append(socket.socket())  # noqa: PERF401 - the count is wanted when it fails
        except OSError:
            return len(held)
        return len(held)

    assert "open_files" in any_sandbox.sandbox.limits_enforced
    assert any_sandbox.ask(a_thousand_sockets) < 256


def test_a_daemon_that_dies_leaves_no_core(any_sandbox: SandboxedCall) -> None:
    def limit() -> tuple[int, int]:
        return resource.getrlimit(resource.RLIMIT_CORE)

    assert any_sandbox.ask(limit) == [0, 0]
