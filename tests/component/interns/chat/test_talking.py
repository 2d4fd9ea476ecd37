"""Prompts, answers and steering, from the caller to the daemon and back."""

import json
from pathlib import Path
from typing import Any

from tests.component.interns.chat_server import ChatServer
from tests.component.interns.fake_daemon import FakeDaemon

BODIES: list[tuple[dict[str, Any], dict[str, str]]] = json.loads(
    Path(__file__).with_name("bodies.json").read_text()
)
"""What a caller sends, and what of it reaches the daemon."""


async def test_the_daemon_gets_the_text_and_the_mode_with_its_token(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    await chat.stream(approval_mode="manual")
    (asked,) = daemon.asked
    assert asked.path.endswith("/runs")
    assert asked.body == {"input": "Hello", "approval_mode": "manual"}
    wanted, sent = daemon.token_hashes[0]
    assert wanted == sent


async def test_the_daemon_gets_the_last_message_and_no_fields_of_other_apis(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for body, sent in BODIES:
        await chat.stream(body)
        asked = daemon.asked[-1].body
        assert {name: asked[name] for name in sent} == sent, body
        assert set(asked) <= {"input", "approval_mode", "interaction", "answer"}, body


async def test_a_new_session_is_named_at_the_end(chat: ChatServer, daemon: FakeDaemon) -> None:
    told = await chat.stream()
    assert told.session_id == daemon.asked[0].session
    again = await chat.stream()
    assert again.session_id != told.session_id


async def test_a_session_that_the_caller_names_reaches_the_daemon_as_it_is(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for session in ("mine", "..", "a/b?c=d#e %41", "x" * 256, "übung 🦉"):
        assert (await chat.stream(session_id=session)).session_id == session
        assert daemon.asked[-1].session == session


async def test_nothing_between_may_hold_the_stream_back(chat: ChatServer) -> None:
    reply = await chat.send()
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-accel-buffering"] == "no"
