"""What the tests of the command line share: a server, a process for commands, a data folder.

Starting a program costs a second; the tests that are not about starting share what was started.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.fake_chat_gateway import FakeChatGateway, run_fake_chat_gateway
from tests.support.server_process import ServerProcess, start_server


@pytest.fixture(scope="session")
def runner() -> Iterator[CommandRunner]:
    with CommandRunner() as runner:
        yield runner


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that no test may stop, with a first account that tests share."""
    with start_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def gateway() -> Iterator[FakeChatGateway]:
    """A fake gateway with an intern `ada` to chat with."""
    with run_fake_chat_gateway() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, runner: CommandRunner) -> Path:
    """A data folder with its first account, to copy."""
    folder = tmp_path_factory.mktemp("template") / "data"
    runner.run("bootstrap", "--data-dir", folder, "--json").json()
    return folder


@pytest.fixture
def bootstrapped(template: Path, tmp_path: Path) -> Path:
    """A data folder with its first account and no running server: `tmp_path/data`."""
    return shutil.copytree(template, tmp_path / "data")
