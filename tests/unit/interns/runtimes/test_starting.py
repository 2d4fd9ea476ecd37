"""What is said of a machine that cannot make sandboxes, or of one that did not start."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from tollhouse.interns.runtimes import bubblewrap, host, sandbox_process
from tollhouse.interns.runtimes.base import Launch, RuntimeFailed
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.interns.runtimes.host import HostView
from tollhouse.interns.runtimes.sandbox_process import StderrTail, paused
from tollhouse.kernel.clock import SystemClock

HOST = cast("HostView", None)
SAID = "bwrap: Can't mkdir /srv/secret-place: Permission denied"


def saying(version: str, trial: int) -> object:
    def run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        if "--version" in command:
            return subprocess.CompletedProcess(command, 0, version, "")
        return subprocess.CompletedProcess(command, trial, "", SAID)

    return run


@pytest.fixture(autouse=True)
def has_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has bubblewrap on every machine, and nothing of it run."""
    monkeypatch.setattr(host.shutil, "which", lambda _: "/opt/secret-place/bwrap")
    monkeypatch.setattr(host, "first_unreadable", lambda _: None)
    monkeypatch.setattr(host, "_run", saying("bubblewrap 0.9.0", 0))


def test_a_machine_that_can_make_sandboxes_has_no_problem() -> None:
    assert host.find_problem(HOST, as_root=True) is None


def test_the_words_of_a_trial_that_failed_are_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_run", saying("bubblewrap 0.9.0", 1))
    with capture_logs() as logs:
        said = host.find_problem(HOST, as_root=True)
    assert said is not None
    assert "allow user namespaces" in said
    assert "secret-place" not in said
    assert [entry["said"] for entry in logs] == [SAID]


def test_the_folder_that_sandboxes_cannot_read_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "first_unreadable", lambda _: Path("/root/secret-place"))
    with capture_logs() as logs:
        said = host.find_problem(HOST, as_root=True)
    assert said is not None
    assert "chmod -R o+rX" in said
    assert "secret-place" not in said
    assert [entry["path"] for entry in logs] == ["/root/secret-place"]


def test_what_an_old_bubblewrap_says_of_itself_is_in_the_log_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "_run", saying("/srv/secret-place 0.4", 0))
    assert host.find_problem(HOST, as_root=False) == (
        "bubblewrap is too old: 0.8.0 or newer is needed"
    )


# Whether sandboxes can be made is tried until it worked, and again once one did not start


async def test_a_trial_that_worked_is_enough_until_a_sandbox_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["no bubblewrap", None, "no namespaces"]

    def tried(*_: Any, **__: Any) -> str | None:
        return answers.pop(0)

    def refused(_: Launch) -> None:
        raise OSError

    monkeypatch.setattr(bubblewrap, "find_problem", tried)
    runtime = BubblewrapRuntime(tmp_path, SystemClock())
    assert [runtime.problem() for _ in range(4)] == ["no bubblewrap", None, None, None]
    monkeypatch.setattr(runtime, "_prepare", refused)
    with pytest.raises(RuntimeFailed, match="the machine refused"):
        await runtime.start(cast("Launch", SimpleNamespace(name="ada")))
    assert runtime.problem() == "no namespaces"


async def test_what_was_half_made_is_swept_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []
    group = SimpleNamespace(remove=lambda: swept.append("its group"))

    async def killed(*_: Any) -> None:
        raise OSError

    def ended(mark: str, running: frozenset[str]) -> None:
        swept.append(mark.rpartition("-")[2])
        assert not running

    monkeypatch.setattr(bubblewrap, "kill_marked", ended)
    runtime = BubblewrapRuntime(tmp_path, SystemClock())
    monkeypatch.setattr(runtime, "_prepare", lambda _: group)
    monkeypatch.setattr(runtime, "_start", killed)
    with pytest.raises(RuntimeFailed, match="the machine refused"):
        await runtime.start(cast("Launch", SimpleNamespace(name="ada")))
    assert swept == ["ada", "its group"]


# What a program says is waited for, but not for ever; and programs stand still when told to


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
