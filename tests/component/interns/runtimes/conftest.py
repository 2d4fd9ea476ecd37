import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.interns.runtimes.sandbox_runner import DAEMON_COMMAND, SandboxRunner
from tests.support.sandbox_support import sandbox_problem
from tollhouse.interns.runtimes.base import Runtime
from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.interns.runtimes.process import ProcessRuntime
from tollhouse.kernel.clock import SystemClock


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a server's permissions."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "secret").write_text("do not read")
    return folder


@pytest.fixture
def bubblewrap(data: Path) -> BubblewrapRuntime:
    assert sandbox_problem() is None, sandbox_problem()
    return BubblewrapRuntime(data, SystemClock(), DAEMON_COMMAND)


@pytest.fixture(params=[pytest.param("bubblewrap", marks=pytest.mark.sandbox), "process"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """Each runtime in turn."""
    if request.param == "bubblewrap":
        return request.getfixturevalue("bubblewrap")
    return ProcessRuntime(SystemClock(), DAEMON_COMMAND)


@pytest.fixture
async def sandboxes(runtime: Runtime, data: Path) -> AsyncIterator[SandboxRunner]:
    """Starts sandboxes on each runtime."""
    made = SandboxRunner(runtime, data, f"test-{os.getpid()}")
    yield made
    await made.end()


@pytest.fixture
async def boxes(bubblewrap: BubblewrapRuntime, data: Path) -> AsyncIterator[SandboxRunner]:
    """Starts sandboxes with bubblewrap."""
    made = SandboxRunner(bubblewrap, data, f"test-{os.getpid()}")
    yield made
    await made.end()
