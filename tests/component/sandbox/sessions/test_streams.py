"""A stream of events, and what happens while it is sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.session_client import parse_events
from tollhouse.sandbox.daemon.sessions.endpoints import EventStream
from tollhouse.sandbox.daemon.sessions.log import SessionLog, SessionRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
