"""Children that are started, on both event loops: none is left behind."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest
import uvloop

from tests.support.slow_start import SlowStart, is_gone
from tollhouse.kernel.subprocesses import kill, own_module, start

PIPE = asyncio.subprocess.PIPE
TALKS = (sys.executable, "-c", "while True: print('again' * 1000)")
SECONDS = 30


class Run(Protocol):
    def __call__(self, main: Coroutine[Any, Any, None], /) -> None: ...


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs on each loop in turn."""
    main: Run = request.param
    return main


def test_one_whose_start_is_cancelled_is_gone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        slow = SlowStart(monkeypatch)
        starting = asyncio.create_task(start(*TALKS, stdin=PIPE, stdout=PIPE, stderr=PIPE))
        await slow.begun.wait()
        starting.cancel()
        await asyncio.sleep(0)
        slow.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, SECONDS)
        assert is_gone(slow.child)

    run(main())


def test_one_whose_start_is_cancelled_again_is_gone_in_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        slow = SlowStart(monkeypatch)
        starting = asyncio.create_task(start(*TALKS, stdout=PIPE))
        await slow.begun.wait()
        for _ in range(2):
            starting.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await starting
        slow.may_go_on.set()
        async with asyncio.timeout(SECONDS):
            while not is_gone(slow.child):
                await asyncio.sleep(0.01)

    run(main())


def test_one_whose_start_is_cancelled_is_ended_as_its_caller_wants(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Process] = []

    async def end(process: Process) -> None:
        ended.append(process)
        await kill(process)

    async def main() -> None:
        slow = SlowStart(monkeypatch)
        starting = asyncio.create_task(start(*TALKS, end=end, stdout=PIPE))
        await slow.begun.wait()
        starting.cancel()
        slow.may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(starting, SECONDS)
        assert ended == [slow.child]

    run(main())


def test_one_that_cannot_be_started_says_why(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await start("/nowhere/at-all")

    run(main())


def test_one_that_was_killed_is_gone_whatever_it_was_saying(run: Run) -> None:
    async def main() -> None:
        process = await start(*TALKS, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        await asyncio.wait_for(kill(process), SECONDS)
        assert is_gone(process)

    run(main())


def test_one_that_has_ended_can_be_killed(run: Run) -> None:
    async def main() -> None:
        process = await start(sys.executable, "-c", "")
        await process.wait()
        await kill(process)

    run(main())


def test_one_of_our_modules_is_not_found_in_the_folder_we_are_in(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "this.py").write_text("print('not ours')")
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        process = await start(*own_module("this"), stdout=PIPE)
        said, _ = await process.communicate()
        assert said.decode().startswith("The Zen of Python")

    run(main())
