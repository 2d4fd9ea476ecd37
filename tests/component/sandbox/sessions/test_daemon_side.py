"""The daemon's side of a run: its agent's pipes, what is handed in, and the stream of events."""

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.session_client import parse_events
from tests.support.waiting import until
from tollhouse.sandbox.daemon.sessions import active_run
from tollhouse.sandbox.daemon.sessions.active_run import ActiveRun
from tollhouse.sandbox.daemon.sessions.agent import AgentProcess, AgentSupervisor
from tollhouse.sandbox.daemon.sessions.endpoints import EventStream
from tollhouse.sandbox.daemon.sessions.log import SessionLog, SessionRun

RUN = SessionRun("r", "s", "manual", {})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionLog]:
    log = SessionLog(tmp_path)
    with log.writing() as write:
        write.run(RUN)
    yield log
    log.close()


def add(log: SessionLog, kind: str, times: int = 1) -> None:
    with log.writing() as write:
        for _ in range(times):
            write.event(RUN, kind, text="x")


class Client:
    """Reads along; something happens when it gets its first events."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.bodies: list[bytes] = []
        self.is_complete = False
        self._then = then

    async def send(self, message: Any) -> None:
        if body := message.get("body"):
            self.bodies.append(body)
            self._then()
            self._then = lambda: None
        self.is_complete = message.get("more_body") is False

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in parse_events(b"".join(self.bodies).decode())]


async def test_an_end_that_was_told_before_all_were_let_go_is_sent(log: SessionLog) -> None:
    feed = log.feed

    def end() -> None:
        add(log, "run.ended")
        feed.notify("s")
        feed.disconnect("s")

    add(log, "text")
    client = Client(end)
    await EventStream(log.events, feed, "s", 0, of_run=True)({}, client.receive, client.send)
    assert (client.kinds, client.is_complete) == (["text", "run.ended"], True)


async def test_what_is_cut_before_an_end_was_told_has_none(log: SessionLog) -> None:
    feed = log.feed
    add(log, "text")
    client = Client(lambda: feed.disconnect("s"))
    await EventStream(log.events, feed, "s", 0, of_run=True)({}, client.receive, client.send)
    assert (client.kinds, client.is_complete) == (["text"], False)


@pytest.mark.parametrize("events", [0, 1, 127, 128, 129, 256])
async def test_all_of_many_events_are_sent(log: SessionLog, events: int) -> None:
    add(log, "text", events)
    client = Client()
    stream = EventStream(log.events, log.feed, "s", 0, follow=False)
    await stream({}, client.receive, client.send)
    assert (client.kinds, client.is_complete) == (["text"] * events, True)


# What is handed into a run whose agent does not listen


class Agent:
    """Says what the test wants, and when."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.says: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, line: dict[str, Any]) -> None:
        self.heard.append(line)

    async def read(self) -> dict[str, Any]:
        return await self.says.get()


async def test_what_the_agent_does_not_take_in_time_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_run, "STEER_SECONDS", 0.03)
    monkeypatch.setattr(active_run, "_REPLY_SECONDS", 0.03)
    log, run, agent = (SessionLog(tmp_path), SessionRun("r", "s", "manual", {}), Agent())
    with log.writing() as write:
        write.run(run)
    working, deaf = ActiveRun(run, log), cast("AgentProcess", agent)
    driving = asyncio.create_task(working.drive(deaf, {"type": "run"}))
    await asyncio.sleep(0)

    assert not await working.steer("Be quick.")

    steer = agent.heard[-1]
    assert steer["until"] < asyncio.get_running_loop().time()
    assert log.inputs("s") == []
    agent.says.put_nowait({"type": "steered", "input": steer["input"]["id"], "taken": True})
    left = {"keep": 0, "messages": [], "entered": [], "spent": {}, "ended": []}
    agent.says.put_nowait({"type": "ended", "outcome": "completed", "error": None, **left})
    assert await driving is None
    assert [event.kind for event in log.events("s", 0, 10)] == ["run.ended"]
    log.close()


# The agent's process, without an agent: only its pipes


NOBODY = 2**30
"""More than the number of any process."""


class Pipes:
    """Starts nothing, and has the other ends of the pipes."""

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []
        self.running: dict[int, asyncio.Event] = {}

    def start_piped(self, *_: object, errors: bool) -> tuple[int, int, int]:  # noqa: ARG002 - nothing is started
        (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
        os.set_blocking(their_input, False)
        pid = NOBODY + len(self.started)
        self.started.append((their_input, their_output))
        self.running[pid] = asyncio.Event()
        return pid, our_input, our_output

    async def ended(self, pid: int) -> int:
        await self.running[pid].wait()
        del self.running[pid]
        return 0

    def end_all(self) -> None:
        for end in self.running.values():
            end.set()

    def is_hung_up(self, number: int) -> bool:
        """Tell whether nobody can write any more what a process would read."""
        try:
            return os.read(self.started[number][0], 1) == b""
        except BlockingIOError:
            return False

    def close(self) -> None:
        for end in (end for pair in self.started for end in pair):
            os.close(end)


async def test_an_agent_that_ended_before_it_was_talked_to_leaves_no_pipe_open() -> None:
    pipes = Pipes()
    children: Any = pipes
    agents = AgentSupervisor(partial(AgentProcess, children, {}, {}), idle_seconds=60)
    agents.prepare()
    pipes.end_all()
    await until(lambda: not pipes.running)
    agents.prepare()
    await until(lambda: pipes.is_hung_up(0))
    assert (len(pipes.started), pipes.is_hung_up(1)) == (2, False)
    pipes.end_all()
    await agents.close()
    assert pipes.is_hung_up(1)
    pipes.close()
