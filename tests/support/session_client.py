"""A client of a session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from tests.component.sandbox.daemon.daemon_process import SECONDS, DaemonProcess


@dataclass(frozen=True)
class Event:
    number: int
    kind: str
    data: dict[str, Any]


class Events(list[Event]):
    """The events that a client received."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event.data for event in self if event.kind == kind]

    def kinds(self) -> list[str]:
        """Return the events' types, consecutive equal ones once."""
        found = [event.kind for event in self]
        return [kind for at, kind in enumerate(found) if at == 0 or found[at - 1] != kind]

    @property
    def text(self) -> str:
        return "".join(data["text"] for data in self.of("text"))

    @property
    def last(self) -> dict[str, Any]:
        return self[-1].data

    @property
    def outcomes(self) -> list[str]:
        return [data["outcome"] for data in self.of("tool.ended")]


class SessionClient:
    """A client of one session of the daemon."""

    def __init__(self, daemon: DaemonProcess, session: str = "a session/é") -> None:
        self._daemon = daemon
        self.id = session
        self.path = f"/sessions/{quote(session, safe='')}"

    async def run(self, text: str, **body: object) -> Events:
        """Start a run; return its events up to the end or a question."""
        return await self._all("runs", {"input": text, **body})

    async def answer(self, interaction: str, answer: object) -> Events:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return await self._all("answers", {"interaction": interaction, "answer": text})

    async def post(self, path: str, body: object) -> httpx2.Response:
        """Send a request that is refused, or that joins a run."""
        async with self._daemon.client() as client:
            return await client.post(f"{self.path}/{path}", content=json.dumps(body))

    async def cancel(self) -> int:
        async with self._daemon.client() as client:
            return (await client.delete(f"{self.path}/runs/current")).status_code

    async def events(self, **query: object) -> Events:
        """Return all that is in the log."""
        async with self._daemon.client() as client:
            response = await client.get(f"{self.path}/events", params={"follow": "false", **query})
        assert response.status_code == 200, response.text
        return parse_events(response.text)

    @asynccontextmanager
    async def running(self, text: str, **body: object) -> AsyncIterator[EventStream]:
        """Start a run and read its events; leaving the block disconnects."""
        async with (
            self._daemon.client() as client,
            client.stream("POST", f"{self.path}/runs", json={"input": text, **body}) as response,
        ):
            assert response.status_code == 200
            yield EventStream(response)

    @asynccontextmanager
    async def following(self, after: int = 0) -> AsyncIterator[EventStream]:
        async with (
            self._daemon.client() as client,
            client.stream(
                "GET", f"{self.path}/events", headers={"Last-Event-ID": str(after)}
            ) as response,
        ):
            yield EventStream(response)

    async def _all(self, path: str, body: object) -> Events:
        async with self._daemon.client() as client:
            response = await client.post(f"{self.path}/{path}", json=body)
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"] == "text/event-stream"
        events = parse_events(response.text)
        numbers = [event.number for event in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        return events


class EventStream:
    """A stream of events, read one by one."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()
        self.events = Events()

    async def until(self, kind: str) -> dict[str, Any]:
        """Read until there is an event of a type."""
        while True:
            event = await self.next()
            if event.kind == kind:
                return event.data

    async def rest(self) -> Events:
        """Read to the end."""
        try:
            while True:
                await self.next()
        except StopAsyncIteration:
            return self.events

    async def next(self) -> Event:
        found: list[str] = []
        async with asyncio.timeout(SECONDS):
            while line := await anext(self._lines):
                if not line.startswith(":"):
                    found.append(line)
            if not found:
                return await self.next()
        self.events.append(_event(found))
        return self.events[-1]


def parse_events(text: str) -> Events:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return Events(_event(block.split("\n")) for block in blocks)


def assert_complete(events: Events) -> None:
    """Assert that a log has every event once, and that each run has ended."""
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    begun = [data["run"] for data in events.of("run.started")]
    assert len(set(begun)) == len(begun)
    assert [data["run"] for data in events.of("run.ended")] == begun
    calls = [data["call"] for data in events.of("tool.started")]
    assert sorted(data["call"] for data in events.of("tool.ended")) == sorted(calls)


def _event(lines: list[str]) -> Event:
    fields = dict(line.split(": ", 1) for line in lines)
    assert sorted(fields) == ["data", "event", "id"]
    return Event(int(fields["id"]), fields["event"], json.loads(fields["data"]))
