"""A daemon with an agent, and a fake model that plays scripted turns.

Both are shared by the tests of a file, which use sessions of their own: an agent takes a
second to start. Tests that end a daemon, or need one with other settings, start it themselves.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.model_server import MODEL, FakeModel, run_model
from tests.support.session_client import SessionClient


@pytest.fixture(scope="module")
def shared_model() -> Iterator[FakeModel]:
    with run_model() as model:
        yield model


@pytest.fixture
def model(shared_model: FakeModel) -> FakeModel:
    shared_model.reset()
    return shared_model


@pytest.fixture(scope="module")
def daemon(
    tmp_path_factory: pytest.TempPathFactory, shared_model: FakeModel
) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("daemon")
    with DaemonProcess(folder, agent=agent_settings(shared_model)) as daemon:
        yield daemon


@pytest.fixture
async def session(
    daemon: DaemonProcess,
    model: FakeModel,  # noqa: ARG001 - it has forgotten what other tests said
    request: pytest.FixtureRequest,
) -> AsyncIterator[SessionClient]:
    session = SessionClient(daemon, f"{request.node.name}/é")
    yield session
    await session.cancel()


@pytest.fixture
def start(tmp_path: Path, model: FakeModel) -> Callable[..., DaemonProcess]:
    """Start a daemon for one test, as a context manager."""

    def start(**agent: object) -> DaemonProcess:
        return DaemonProcess(tmp_path, agent={**agent_settings(model), **agent})

    return start


def agent_settings(model: FakeModel) -> dict[str, object]:
    return {"model": MODEL, "instructions": "Be brief.", "base_url": model.url}
