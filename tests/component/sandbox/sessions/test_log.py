"""The log is a file of the intern's, which may do anything to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.sessions.conftest import agent_settings
from tests.support.model_server import call, says
from tests.support.session_client import SessionClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.model_server import FakeModel


@pytest.fixture(scope="module")
def first_talk(tmp_path_factory: pytest.TempPathFactory, shared_model: FakeModel) -> Path:
    """The folder of a daemon that has ended, after one conversation."""
    folder = tmp_path_factory.mktemp("talked")
    shared_model.reset()
    shared_model.turns = [says("One.")]
    with DaemonProcess(folder, agent=agent_settings(shared_model)) as daemon:
        asyncio.run(SessionClient(daemon).run("first"))
    return daemon.workspace / ".intern"


@pytest.fixture
def home(first_talk: Path, tmp_path: Path) -> Path:
    """What that daemon has left, in the workspace of the test's own."""
    return Path(shutil.copytree(first_talk, tmp_path / "workspace" / ".intern"))


@pytest.fixture(autouse=True)
def no_damaged_files_left(tmp_path: Path) -> Iterator[None]:
    """Remove what the search for secrets in files, at the end of all tests, could not read."""
    yield
    shutil.rmtree(tmp_path / "workspace" / ".intern", ignore_errors=True)


async def test_a_log_that_cannot_be_read_is_set_aside_and_the_client_is_told(
    model: FakeModel, start: Callable[..., DaemonProcess], home: Path
) -> None:
    (home / "sessions" / "log.sqlite3").write_bytes(os.urandom(50_000))
    (home / "sessions" / "log.sqlite3-wal").write_bytes(os.urandom(50_000))
    model.turns = [says("Two.")]
    with start() as daemon:
        assert (await SessionClient(daemon).run("second")).text == "Two."
        assert (await SessionClient(daemon).events())[0].number == 1
    assert len(set_aside(home)) == 1


async def test_a_conversation_that_cannot_be_read_says_so(
    model: FakeModel, start: Callable[..., DaemonProcess], home: Path
) -> None:
    model.turns = [says("Elsewhere.")]
    with closing(
        sqlite3.connect(home / "sessions" / "log.sqlite3", isolation_level=None)
    ) as connection:
        connection.execute("UPDATE messages SET body = '{'")
    with start() as daemon:
        events = await SessionClient(daemon).run("second")
        assert "begin another session" in events.last["error"]["message"]
        assert (await SessionClient(daemon, "another").run("third")).text == "Elsewhere."


async def test_a_log_that_is_harmed_amid_a_run_ends_no_daemon(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    harm = (
        "for file in .intern/sessions/*; do head -c 100000 /dev/urandom > $file; done;"
        " rm -rf .intern"
    )
    model.turns = [says("Look: ", call("shell", command=harm)), says("Gone.")]
    with start() as daemon:
        session = SessionClient(daemon)
        with suppress(httpx2.RemoteProtocolError):  # its own log is gone: it breaks off
            await session.post("runs", {"input": "Harm it."})
        model.turns, model.always = [], says("Here.")
        for _ in range(3):
            last = await session.post("runs", {"input": "And now?"})
        assert last.status_code == 200
        assert daemon.process.poll() is None
    with start() as daemon:
        assert (await SessionClient(daemon).run("And after that?")).text == "Here."


async def test_nothing_is_made_before_somebody_talks(
    start: Callable[..., DaemonProcess],
) -> None:
    with start() as daemon:
        async with daemon.client() as client:
            assert (await client.get("/sessions")).json() == {"data": [], "has_more": False}
        assert not (daemon.workspace / ".intern" / "sessions").exists()
        assert len(daemon.processes()) == 1


def set_aside(home: Path) -> list[Path]:
    return [*home.glob("sessions.damaged-*")]
