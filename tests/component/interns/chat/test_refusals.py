"""Every refusal of a chat that an intern which runs can end in: status, reason, another try."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest

from tests.component.interns.chat_server import PROMPT, ChatServer, answer
from tests.component.interns.fake_daemon import (
    DISCONNECT,
    HOLD,
    STEERED,
    FakeDaemon,
    error_response,
    json_response,
)
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for_event
from tollhouse.interns.chat.service import ChatRateLimiter
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Conflict, RateLimited, Unavailable

ANSWER = answer("mine", "ask-1", "allow_once")
in_a_hurry = pytest.mark.parametrize("paces", [ChatTimeouts(head=1.0, farewell=0.1)], ids=["hurry"])
"""Of a test that waits for the end of a daemon's time to answer."""


def refused(
    reply: httpx2.Response, status: int, reason: str, *, retryable: bool, after: int | None = None
) -> str:
    """Check a refusal; return its message."""
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert set(error) == {"code", "message", "metadata"}
    assert error["code"] == status
    assert error["metadata"] == {"reason": reason, "retryable": retryable}
    assert reply.headers.get("retry-after") == (None if after is None else str(after))
    message: str = error["message"]
    return message


# What the daemon refuses


async def test_an_answer_that_was_not_offered_is_refused_in_the_interns_words(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script(error_response(400, "bad_request", message="Not\noffered."))
    message = refused(await chat.send(ANSWER), 400, "bad_request", retryable=False)
    assert message == "Not offered."


NO_SENSE: list[Any] = [
    error_response(400, "bad_request"),
    error_response(500, None, message="hunter2"),
    error_response(418, "teapot"),
    json_response(200, {"no": "stream"}),
    json_response(409, b"garbage"),
    json_response(409, b"\xff" * 100),
    json_response(409, b"[" * 50_000),
    json_response(409, {"error": "busy"}),
    json_response(409, b"x" * 70_000),
    [b"HTTP/1.1 409 No\r\nContent-Length: 5\r\n\r\nab", DISCONNECT],
    STEERED,
    [b"garbage\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"],
    [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000],
    [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
    [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"],
    [b"HTTP/2.0 200 OK\r\n\r\n"],
]


async def test_an_answer_that_makes_no_sense_is_a_rejection(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for answer_of_the_daemon in NO_SENSE:
        daemon.script(answer_of_the_daemon)
        reply = await chat.send()
        refused(reply, 502, "intern_rejected", retryable=False)
        assert "hunter2" not in reply.text
        assert chat.open_streams() == 0


async def test_a_refusal_that_no_daemon_has_is_a_rejection(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    made_up = [
        (302, None),
        (403, None),
        (404, "not_found"),
        (409, "made up"),
        (429, "rate_limited"),
    ]
    for status, reason in made_up:
        daemon.script(*[error_response(status, reason)] * 2)
        for body in (None, ANSWER):
            refused(await chat.send(body), 502, "intern_rejected", retryable=False)


async def test_only_an_answer_can_be_wrong_for_the_daemon(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for status, reason, seen in (
        (400, "bad_request", 400),
        (413, "bad_request", 400),
        (404, "interaction_unknown", 404),
        (409, "interaction_not_pending", 409),
        (410, "attachment_failed", 410),
    ):
        daemon.script(*[error_response(status, reason)] * 2)
        refused(await chat.send(), 502, "intern_rejected", retryable=False)
        refused(await chat.send(ANSWER), seen, reason, retryable=False)


async def test_a_workspace_that_is_full_is_said_to_be(chat: ChatServer, daemon: FakeDaemon) -> None:
    daemon.script(error_response(507, "workspace_full"))
    assert "full" in refused(await chat.send(), 502, "intern_rejected", retryable=False)


@in_a_hurry
async def test_a_refusal_that_never_ends_is_a_rejection(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script([b"HTTP/1.1 409 No\r\nContent-Length: 5\r\n\r\nab", HOLD])
    refused(await chat.send(), 502, "intern_rejected", retryable=False)
    assert chat.open_streams() == 0


async def test_a_daemon_that_does_not_answer_is_unreachable(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    half = b"HTTP/1.1 200 OK\r\nConte"
    for nothing in ([DISCONNECT], [half, DISCONNECT], error_response(401, None), [b""]):
        daemon.script(nothing)
        refused(await chat.send(), 502, "intern_unreachable", retryable=True)


@in_a_hurry
async def test_a_daemon_that_hangs_times_out_and_is_left(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for begin in ([], [b"HTTP/1.1 200 OK\r\nX: y\r\n"], [b"HTTP/1.1 100 Continue\r\n\r\n"]):
        daemon.script([*begin, HOLD])
        daemon.left.clear()
        before = len(daemon.asked)
        refused(await chat.send(), 504, "timeout", retryable=True)
        if len(daemon.asked) > before:  # else the time was over before
            await wait_for_event(daemon.left)


# What lies before the daemon


async def test_an_intern_of_another_machine_is_unreachable(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(chat.machine.sandboxes), "socket_of", lambda *_: None)
    refused(await chat.send(), 502, "intern_unreachable", retryable=True)


async def test_an_intern_whose_socket_is_gone_is_unreachable(chat: ChatServer) -> None:
    path = chat.machine.sandboxes.socket_of(chat.intern.id)
    assert path is not None
    path.unlink()
    refused(await chat.send(), 502, "intern_unreachable", retryable=True)


async def test_an_intern_whose_token_cannot_be_had_now_is_unreachable(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    vaults, service = type(chat.machine.interns.context.vaults), type(chat.machine.service)
    for owner, name, error in (
        (vaults, "open_beside", Unavailable("no key")),
        (service, "token_of", Conflict("It has no token.")),
    ):
        monkeypatch.setattr(owner, name, AsyncMock(side_effect=error))
        refused(await chat.send(), 502, "intern_unreachable", retryable=True)


WRONG: list[tuple[dict[str, Any], str]] = json.loads(
    Path(__file__).with_name("wrong_bodies.json").read_text()
)


async def test_a_body_that_breaks_a_rule_is_refused_and_never_reaches_the_daemon(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    for fields, field in WRONG:
        chat.machine.interns.clock.advance(60)
        body = json.dumps({**PROMPT, **fields}).encode()
        reply = await chat.http.post(chat.path, content=body)
        message = refused(reply, 400, "bad_request", retryable=False)
        assert message.startswith(field), (fields, message)
    for missing in PROMPT:
        body = {name: value for name, value in PROMPT.items() if name != missing}
        refused(await chat.http.post(chat.path, json=body), 400, "bad_request", retryable=False)
    assert daemon.asked == []


async def test_a_chat_needs_no_content_type(chat: ChatServer) -> None:
    body = b'{"stream": true, "messages": [{"role": "user", "content": "x"}]}'
    reply = await chat.http.post(chat.path, content=body, headers={"content-type": "text/plain"})
    assert reply.status_code == 200


# How often an account may talk to interns


def take(pace: ChatRateLimiter, clock: FakeClock, account: str = "a") -> int | None:
    """Return `Retry-After` of a refusal; None where the chat may begin."""
    try:
        pace.take(account, Now.by(clock))
    except RateLimited as error:
        return error.retry_after
    return None


def test_accounts_do_not_count_for_each_other() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    assert [take(pace, clock, name) for name in "abab"] == [None, None, 60, 60]


def test_quiet_accounts_are_forgotten() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    for number in range(1_000):
        take(pace, clock, f"account-{number}")
    clock.advance(60)
    take(pace, clock, "another")
    assert len(pace._minutes) == 1  # noqa: SLF001 - nothing else shows it
