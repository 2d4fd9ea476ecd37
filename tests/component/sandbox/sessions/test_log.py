"""The log is a file of the intern's, which may do anything to it; and what a start finds in it."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.component.sandbox.sessions.conftest import agent_settings
from tests.support.model_server import FakeModel, call, says
from tests.support.session_client import SessionClient
from tests.support.waiting import until
from tollhouse.sandbox.daemon.sessions import runs as runs_module
from tollhouse.sandbox.daemon.sessions.log import (
    LogTransaction,
    PendingQuestion,
    SessionLog,
    SessionRun,
)
from tollhouse.sandbox.daemon.sessions.log_file import LogFailed, LogFull, utc_now
from tollhouse.sandbox.daemon.sessions.runs import RunScheduler


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


async def test_nothing_is_made_before_somebody_talks(start: Callable[..., DaemonProcess]) -> None:
    with start() as daemon:
        async with daemon.client() as client:
            assert (await client.get("/sessions")).json() == {"data": [], "has_more": False}
        assert not (daemon.workspace / ".intern" / "sessions").exists()
        assert len(daemon.processes()) == 1


# What a daemon finds in the log when it starts, and whom it believes


ASK = call("ask_user", message="Which colour?")
BLUE = {"action": "accept", "content": {"answer": "blue"}}
REACH = call("http_request", url="http://127.0.0.1:9/")


def write_into_the_log(daemon: DaemonProcess, statement: str) -> None:
    """Do what any program of the workspace may do."""
    file = daemon.workspace / ".intern" / "sessions" / "log.sqlite3"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)


async def test_values_that_cannot_be_keep_no_daemon_from_starting(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says("One."), says("Two.")]
    with start() as daemon:
        await SessionClient(daemon).run("first")
    write_into_the_log(daemon, "UPDATE runs SET id = x'00', state = 'working'")
    with start() as daemon:
        assert (await SessionClient(daemon).run("second")).text == "Two."
    assert len([*(daemon.workspace / ".intern").glob("sessions.damaged-*")]) == 1


async def test_a_run_of_before_asks_whatever_the_log_says_of_its_mode(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.turns = [says(ASK), says(REACH)]
    with start() as daemon:
        asked = await SessionClient(daemon).run("Paint it.", approval_mode="manual")
    write_into_the_log(daemon, "UPDATE runs SET mode = 'self-drive'")
    with start() as daemon:
        events = await SessionClient(daemon).answer(asked.last["interaction"], BLUE)
        assert events.last["permission"]["operation"] == "GET http://127.0.0.1:9/"


class FullOnce(SessionLog):
    """A log of a workspace that is full, and then is not."""

    is_full = False

    @contextmanager
    def writing(self) -> Generator[LogTransaction]:
        if self.is_full:
            self.is_full = False
            raise LogFull
        with super().writing() as write:
            yield write


class UnreadableOnce(SessionLog):
    """A log that cannot be read right after something was written, the next time."""

    will_fail = fails = False

    @contextmanager
    def writing(self) -> Generator[LogTransaction]:
        with super().writing() as write:
            yield write
        self.fails, self.will_fail = self.will_fail, False

    def questions(self, run: str, state: str) -> list[PendingQuestion]:
        if self.fails:
            self.fails = False
            raise LogFailed
        return super().questions(run, state)


ASKED: dict[str, Any] = {"call": "c", "elicitation": {"message": "?", "fields": []}}


def add_run(log: SessionLog, state: str, seconds: float = 0.05) -> None:
    run = SessionRun("r", "s", "manual", {})
    with log.writing() as write:
        write.run(run)
        write.run_state(run, state)
        write.question(run, "q", 0, ASKED)
        write.asked("q", utc_now() + timedelta(seconds=seconds))


async def closed() -> None:
    """Close nothing: no agent was started."""


@pytest.mark.parametrize("state", ["working", "waiting"])
async def test_a_run_whose_end_cannot_be_written_down_is_ended_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(runs_module, "_RETRY_LOG_SECONDS", 0.05)
    log = FullOnce(tmp_path)
    add_run(log, state)
    log.is_full = True
    runs = RunScheduler(log, None, "m", interaction_seconds=60)
    runs.restore()
    await until(lambda: log.open_run("s") is None)
    assert not log.is_full
    await runs.close()
    log.close()


async def test_a_run_that_asks_on_ends_in_time_though_the_log_cannot_be_read_then(
    tmp_path: Path,
) -> None:
    log = UnreadableOnce(tmp_path)
    add_run(log, "waiting", seconds=60)
    with log.writing() as write:
        write.question(SessionRun("r", "s", "manual", {}), "q2", 1, ASKED)
    log.will_fail = True
    agents: Any = SimpleNamespace(prepare=lambda: None, close=closed)
    runs = RunScheduler(log, agents, "m", interaction_seconds=0.05)
    runs.answer("s", "q", '{"action": "decline"}')
    assert log.open_run("s") is not None
    await until(lambda: log.open_run("s") is None)
    await runs.close()
    log.close()
