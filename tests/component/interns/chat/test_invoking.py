"""Runs that nobody watches: begun, steered, gone on with, refused, and driven to their end."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.component.interns.chat_server import ChatServer
from tests.component.interns.fake_daemon import (
    ANSWERED,
    DISCONNECT,
    ELICITATION,
    ENDED,
    HOLD,
    PERMISSION,
    STARTED,
    STEERED,
    STREAM,
    FakeDaemon,
    chunk,
    error_response,
    event,
    stream,
)
from tests.support.builders import OPERATOR
from tests.support.seams.api import request_rules
from tests.support.seams.identity import NewKey
from tests.support.waiting import until, wait_for_event
from tollhouse.interns.chat.transcript import ChatTimeouts

FIRST = chunk(event(*STARTED, 1))


async def invoke(chat: ChatServer, body: Any = None, **more: Any) -> httpx2.Response:
    path = f"/v1/interns/{chat.intern.id}/invoke"
    body = {"input": "Tidy up"} if body is None else body
    return await chat.http.post(path, content=json.dumps(body), **more)


def refusal(reply: httpx2.Response) -> tuple[int, str, bool]:
    error = reply.json()["error"]
    assert error["code"] == reply.status_code
    assert set(error) == {"code", "message", "metadata"}
    return reply.status_code, error["metadata"]["reason"], error["metadata"]["retryable"]


async def test_a_run_goes_on_after_its_request_and_consents_to_all(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script(
        stream(STARTED, PERMISSION),
        stream(ANSWERED, ELICITATION, first=3),
        stream(("text", {"text": "Done."}), ENDED, first=5),
    )
    reply = await invoke(chat)
    assert (reply.status_code, reply.json()["status"]) == (202, "started")
    await until(lambda: chat.chat_count("stop") == 1)
    session = reply.json()["session_id"]
    assert [(each.session, each.body) for each in daemon.asked] == [
        (session, {"input": "Tidy up", "approval_mode": "self-drive"}),
        (session, {"interaction": "ask-1", "answer": "allow_once"}),
        (session, {"interaction": "ask-2", "answer": '{"action":"decline"}'}),
    ]
    assert chat.open_streams() == 0


async def test_a_session_goes_on_and_one_that_works_is_steered(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    daemon.script(stream(STARTED, ENDED), [STREAM, FIRST, HOLD], STEERED)
    session = (await invoke(chat)).json()["session_id"]
    for status in ("started", "steered"):
        body = {"input": "More", "session_id": session, "unknown": 1}
        reply = await invoke(chat, body)
        assert (reply.status_code, reply.json()) == (202, {"session_id": session, "status": status})
    assert {each.session for each in daemon.asked} == {session}
    await chat.invocations.stop()
    await wait_for_event(daemon.left)


async def test_only_who_was_given_a_session_goes_on_with_it(
    chat: ChatServer, daemon: FakeDaemon
) -> None:
    session = (await invoke(chat)).json()["session_id"]
    told = await chat.stream(session_id="mine")
    vault, asked = chat.machine.interns.vault, len(daemon.asked)
    async with vault.database.writing() as write:
        account = vault.tenant.account.id
        other = await vault.identity.create_key(write, OPERATOR, account, NewKey("other"))
    headers = {"Authorization": f"Bearer {other.text}"}
    for issued, more in (
        (told.session_id, {}),
        (f"{session}!", {}),
        (f"{session}AAAA", {}),
        ("é", {}),
        (session, {"headers": headers}),
    ):
        reply = await invoke(chat, {"input": "More", "session_id": issued}, **more)
        assert refusal(reply) == (404, "not_found", False)
    assert len(daemon.asked) == asked


@pytest.mark.parametrize(
    ("answer", "refused"),
    [
        (error_response(409, "busy"), (409, "busy", True)),
        (error_response(503, "busy"), (503, "busy", True)),
        (error_response(502, "turn_failed", retryable=True), (502, "turn_failed", True)),
        ([STREAM[:9], DISCONNECT], (502, "intern_unreachable", True)),
    ],
)
async def test_what_the_intern_refuses(
    chat: ChatServer, daemon: FakeDaemon, answer: Any, refused: tuple[int, str, bool]
) -> None:
    daemon.script(answer)
    assert refusal(await invoke(chat)) == refused


async def test_a_body_that_breaks_a_rule(chat: ChatServer, daemon: FakeDaemon) -> None:
    for body in (
        *({"input": text} for text in ("", "x" * 32_001, 1, None, "\ud800")),
        *({"input": "x", "session_id": name} for name in ("", "x" * 257, "a\nb", None)),
        {},
    ):
        assert refusal(await invoke(chat, body)) == (400, "bad_request", False)
    assert daemon.asked == []


async def test_a_run_ends_with_its_time_and_is_counted(
    chat: ChatServer, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat.invocations, "_seconds", 2.0)
    daemon.script([STREAM, FIRST, HOLD])
    assert (await invoke(chat)).status_code == 202
    await wait_for_event(daemon.left)
    daemon.script([HOLD])
    monkeypatch.setattr(chat.invocations, "_seconds", 0.1)
    assert refusal(await invoke(chat)) == (504, "timeout", True)
    monkeypatch.setattr(chat.invocations, "_seconds", 60.0)
    daemon.script([STREAM, FIRST, DISCONNECT])
    assert (await invoke(chat)).status_code == 202
    await until(lambda: chat.chat_count("stream_severed") == 1)


async def test_what_the_intern_does_not_take_in_time_is_not_begun_later(
    chat: ChatServer, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_rules, "INVOKE_DEADLINE_SECONDS", 0.3)
    daemon.script([HOLD])
    assert refusal(await invoke(chat)) == (408, "timeout", True)
    async with asyncio.timeout(ChatTimeouts().head / 2):  # it would be left after all of it anyway
        await daemon.left.wait()
