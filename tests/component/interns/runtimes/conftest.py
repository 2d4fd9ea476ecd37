import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.component.interns.runtimes.sandbox_runner import (
    DAEMON_COMMAND,
    SandboxedCall,
    SandboxRunner,
    nothing,
)
from tests.support.sandbox_support import sandbox_problem
from tollhouse.interns.runtimes.base import Runtime
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.interns.runtimes.process import ProcessRuntime
from tollhouse.kernel.clock import SystemClock


def make_data(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("do not read")
    return folder


def make_runtime(name: str, data: Path) -> Runtime:
    if name == "process":
        return ProcessRuntime(SystemClock(), DAEMON_COMMAND)
    assert sandbox_problem() is None, sandbox_problem()
    return BubblewrapRuntime(data, SystemClock(), DAEMON_COMMAND)


@contextmanager
def one_sandbox(name: str, folder: Path) -> Iterator[SandboxedCall]:
    """Run a sandbox for tests that only look around in it.

    Its server has a key in its environment, and a descriptor that programs inherit.
    """
    data = make_data(folder / "data")
    held = os.open(data, os.O_RDONLY)
    os.set_inheritable(held, True)  # noqa: FBT003 - its only form
    runner = SandboxRunner(make_runtime(name, data), data, f"shared-{os.getpid()}")
    with asyncio.Runner() as loop, pytest.MonkeyPatch.context() as patched:
        patched.setenv("TOLLHOUSE_MASTER_KEY", "leaked")
        sandbox = loop.run(runner.run(nothing))
        loop.run(sandbox.result())
        os.close(held)
        yield sandbox
        loop.run(runner.end())


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxedCall]:
    """One sandbox by bubblewrap for the tests of a file."""
    with one_sandbox("bubblewrap", tmp_path_factory.mktemp("shared")) as sandbox:
        yield sandbox


EACH = [pytest.param("bubblewrap", marks=pytest.mark.sandbox), "process"]


@pytest.fixture(scope="module", params=EACH)
def any_sandbox(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SandboxedCall]:
    """One sandbox of each runtime in turn."""
    with one_sandbox(request.param, tmp_path_factory.mktemp("shared")) as sandbox:
        yield sandbox


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.fixture
def bubblewrap(data: Path) -> BubblewrapRuntime:
    assert sandbox_problem() is None, sandbox_problem()
    return BubblewrapRuntime(data, SystemClock(), DAEMON_COMMAND)


@pytest.fixture(params=EACH)
def runtime(request: pytest.FixtureRequest, data: Path) -> Runtime:
    """Each runtime in turn."""
    return make_runtime(request.param, data)


@pytest.fixture
async def sandboxes(runtime: Runtime, data: Path) -> AsyncIterator[SandboxRunner]:
    """Starts sandboxes on each runtime."""
    made = SandboxRunner(runtime, data, f"test-{os.getpid()}")
    yield made
    await made.end()


@pytest.fixture
async def boxes(bubblewrap: BubblewrapRuntime, data: Path) -> AsyncIterator[SandboxRunner]:
    made = SandboxRunner(bubblewrap, data, f"test-{os.getpid()}")
    yield made
    await made.end()
