"""Every refusal of a chat that an intern which runs can end in: status, reason, another try."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.component.interns.chat_server import answer
from tests.component.interns.fake_daemon import (
    DISCONNECT,
    HOLD,
    STEERED,
    error_response,
    json_response,
)
from tests.support.waiting import wait_for_event
from tollhouse.interns.chat.transcript import ChatTimeouts
from tollhouse.kernel.errors import Conflict, Unavailable

if TYPE_CHECKING:
    import httpx2

    from tests.component.interns.chat_server import ChatServer
    from tests.component.interns.fake_daemon import FakeDaemon

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


@pytest.mark.parametrize(
    "answer_of_the_daemon",
    [
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
    ],
    ids=[
        *("bad request to a prompt", "500", "unknown", "no stream", "no json", "no text"),
        *("deep", "no object", "large", "cut", "steered into nothing"),
        *("no http", "fields", "field", "upgrade", "coding", "version"),
    ],
)
async def test_an_answer_that_makes_no_sense_is_a_rejection(
    chat: ChatServer, daemon: FakeDaemon, answer_of_the_daemon: Any
) -> None:
    daemon.script(answer_of_the_daemon)
    reply = await chat.send()
    refused(reply, 502, "intern_rejected", retryable=False)
    assert "hunter2" not in reply.text
    assert chat.open_streams() == 0


@in_a_hurry
async def test_a_refusal_that_never_ends_is_a_rejection(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script([b"HTTP/1.1 409 No\r\nContent-Length: 5\r\n\r\nab", HOLD])
    refused(await chat.send(), 502, "intern_rejected", retryable=False)
    assert chat.open_streams() == 0


@pytest.mark.parametrize(
    "answer_of_the_daemon",
    [[DISCONNECT], [b"HTTP/1.1 200 OK\r\nConte", DISCONNECT], error_response(401, None), [b""]],
    ids=["nothing", "half a head", "another token", "closed"],
)
async def test_a_daemon_that_does_not_answer_is_unreachable(
    chat: ChatServer, daemon: FakeDaemon, answer_of_the_daemon: Any
) -> None:
    daemon.script(answer_of_the_daemon)
    refused(await chat.send(), 502, "intern_unreachable", retryable=True)


@in_a_hurry
@pytest.mark.parametrize(
    "answer_of_the_daemon",
    [[HOLD], [b"HTTP/1.1 200 OK\r\nX: y\r\n", HOLD], [b"HTTP/1.1 100 Continue\r\n\r\n", HOLD]],
    ids=["nothing", "half a head", "interim"],
)
async def test_a_daemon_that_hangs_times_out_and_is_left(
    chat: ChatServer, daemon: FakeDaemon, answer_of_the_daemon: Any
) -> None:
    daemon.script(answer_of_the_daemon)
    refused(await chat.send(), 504, "timeout", retryable=True)
    if daemon.asked:  # else the time was over before
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


async def test_a_token_that_cannot_be_opened_is_nothing_that_the_contract_does_not_know(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(*_: object) -> None:
        message = "no key"
        raise Unavailable(message)

    monkeypatch.setattr(type(chat.machine.interns.context.vaults), "open_beside", closed)
    refused(await chat.send(), 502, "intern_unreachable", retryable=True)


async def test_an_intern_that_has_no_token_in_this_moment_is_unreachable(
    chat: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def token_of(*_: object) -> None:
        raise Conflict("It has no token.")

    monkeypatch.setattr(type(chat.machine.service), "token_of", token_of)
    refused(await chat.send(), 502, "intern_unreachable", retryable=True)


async def test_an_intern_that_does_not_run_is_not_ready(chat: ChatServer) -> None:
    interns = chat.machine.interns
    other = await interns.create("bob")
    reply = await chat.http.post(
        f"/v1/interns/{other.id}/chat/completions",
        json={"stream": True, "messages": [{"role": "user", "content": "Hello"}]},
    )
    message = refused(reply, 409, "intern_not_ready", retryable=True)
    assert message == "The intern is queued: it cannot be talked to."


@pytest.mark.parametrize("chats", [2])
async def test_too_many_chats_in_a_minute_are_refused(chat: ChatServer) -> None:
    await chat.stream()
    await chat.stream()
    reply = await chat.send()
    message = refused(reply, 429, "rate_limited", retryable=True, after=60)
    assert "2 times a minute" in message
    assert chat.chat_count("rate_limited") == 1
    chat.machine.interns.clock.advance(60)
    await chat.stream()


async def test_what_was_refused_never_reached_the_daemon(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    reply = await chat.send(stream=False)
    message = refused(reply, 400, "bad_request", retryable=False)
    assert message == "stream: must be true: an intern only streams."
    reply = await chat.send(messages=[{"role": "assistant", "content": "x"}])
    refused(reply, 400, "bad_request", retryable=False)
    assert daemon.asked == []


async def test_a_chat_needs_no_content_type(chat: ChatServer) -> None:
    body = b'{"stream": true, "messages": [{"role": "user", "content": "x"}]}'
    reply = await chat.http.post(chat.path, content=body, headers={"content-type": "text/plain"})
    assert reply.status_code == 200
