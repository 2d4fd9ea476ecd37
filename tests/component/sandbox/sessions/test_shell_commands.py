"""Programs that a tool runs, and whose call is broken off."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.waiting import until
from tollhouse.sandbox.agent.tools import shell as commands
from tollhouse.sandbox.agent.tools.shell import CommandResult, run_command

SHELL_THEN_CHILD = "sleep 86391 & echo $$ $! > made; mv made numbers"

AGAIN = "/bin/sh again"


@pytest.fixture(autouse=True)
def _pipes_are_closed() -> Iterator[None]:
    before = pipes()
    yield
    assert pipes() == before


def pipes() -> set[str]:
    found: set[str] = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the listing's own
            found.add(str(link.readlink()))
    return {name for name in found if name.startswith("pipe:")}


def begun(folder: Path, command: str, seconds: float) -> asyncio.Task[CommandResult]:
    return asyncio.create_task(run_command(["/bin/sh", "-c", command], folder, os.environ, seconds))


def runs(number: str) -> bool:
    try:
        status = Path(f"/proc/{number}/stat").read_bytes()
    except OSError:
        return False
    return not status.rpartition(b") ")[2].startswith((b"Z", b"X"))


async def numbers(folder: Path) -> list[str]:
    await until((folder / "numbers").exists)
    return (folder / "numbers").read_text().split()


async def check_broken_off(task: asyncio.Task[CommandResult]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)  # for the pipes to be closed


async def test_what_is_in_the_background_is_ended_with_a_call_that_waits_for_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_LINGER_SECONDS", 60)
    task = begun(tmp_path, SHELL_THEN_CHILD, seconds=60)
    shell, child = await numbers(tmp_path)
    await until(lambda: not runs(shell))
    assert runs(child)
    await check_broken_off(task)
    await until(lambda: not runs(child))  # a busy machine takes its time over a kill


async def test_what_starts_one_program_after_the_other_is_ended_with_a_call(tmp_path: Path) -> None:
    first = "[ -e numbers ] || { echo $$ > made; mv made numbers; }"
    (tmp_path / "again").write_text(f"{first}; exec {AGAIN}")
    task = begun(tmp_path, f"setsid {AGAIN} & wait", seconds=60)
    started = await numbers(tmp_path)
    await check_broken_off(task)
    await until(lambda: not any(map(runs, started)))


async def test_a_call_that_is_broken_off_while_it_is_ended_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end, ending = commands._kill_all, asyncio.Event()  # noqa: SLF001 - it takes long here

    async def begin_to_end(*_: object) -> None:
        monkeypatch.setattr(commands, "_kill_all", end)
        ending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(commands, "_kill_all", begin_to_end)
    task = begun(tmp_path, f"{SHELL_THEN_CHILD}; wait", seconds=1)
    started = await numbers(tmp_path)
    await ending.wait()
    await check_broken_off(task)
    await until(lambda: not any(map(runs, started)))
