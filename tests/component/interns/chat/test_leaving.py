"""Silence, deadlines, and callers that leave: the run ends with whoever watches it."""

import asyncio
from typing import Any

import pytest

from tests.component.interns.chat_server import ChatServer
from tests.component.interns.fake_daemon import (
    ENDED,
    HOLD,
    STARTED,
    STREAM,
    FakeDaemon,
    chunk,
    event,
)
from tests.support.seams.api import request_rules
from tests.support.waiting import WAIT_SECONDS, until, wait_for_event
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.interns.types import Operation

FIRST = chunk(event(*STARTED, 1) + event("text", {"text": "Hello"}, 2))
LAST = chunk(event(*ENDED, 3))


@pytest.fixture
def paces() -> ChatTimeouts:
    return ChatTimeouts(silence=0.05)


async def read_until(reader: asyncio.StreamReader, mark: bytes) -> bytes:
    async with asyncio.timeout(WAIT_SECONDS):
        return await reader.readuntil(mark)


in_a_hurry = pytest.mark.parametrize(
    "paces", [ChatTimeouts(stream=1.0, silence=0.05, farewell=0.2)], ids=["hurry"]
)
"""Of a test that waits for the end of a stream's time."""


async def test_a_silent_stream_says_that_it_lives(chat: ChatServer, daemon: FakeDaemon) -> None:
    comments: list[Any] = [step for _ in range(5) for step in (0.03, chunk(b": ping\n\n"))]
    daemon.script([STREAM, FIRST, *comments, LAST])
    told = await chat.stream()
    assert told.keep_alives >= 1
    assert (told.content, told.finish) == ("Hello", "stop")


@in_a_hurry
async def test_a_stream_that_takes_too_long_ends_the_run(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script([STREAM, FIRST, HOLD])
    told = await chat.stream()
    assert told.error is not None
    assert (told.error["code"], told.reason, told.content) == (504, "timeout", "Hello")
    await wait_for_event(daemon.left)
    assert chat.chat_count("timeout") == 1


async def test_whoever_leaves_before_the_daemon_answers_ends_it_too(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script([HOLD])
    asked = asyncio.Event()
    daemon.on_asked = asked.set
    _, writer = await chat.open()
    await wait_for_event(asked)
    writer.transport.abort()
    await wait_for_event(daemon.left)


async def test_an_intern_that_is_suspended_severs_its_streams(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script([STREAM, FIRST, HOLD])
    reader, writer = await chat.open()
    await read_until(reader, b"Hello")
    await chat.machine.request(Operation.SUSPEND, chat.intern)
    assert b'"stream_severed"' in await read_until(reader, b"[DONE]")
    writer.close()


@in_a_hurry
async def test_a_caller_that_does_not_read_does_not_hold_the_run(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    flood = [chunk(event("text", {"text": "x" * 60_000}, number)) for number in range(3, 100)]
    daemon.script([STREAM, FIRST, *flood, HOLD])
    _, writer = await chat.open()
    await until(lambda: chat.chat_count("client_closed_request"))
    assert chat.open_streams() == 0
    writer.transport.abort()


async def test_a_stream_that_has_begun_has_its_own_time(
    chat: ChatServer, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_rules, "CHAT_DEADLINE_SECONDS", 1.0)
    daemon.script([STREAM, FIRST, 1.1, LAST])
    assert (await chat.stream()).finish == "stop"
