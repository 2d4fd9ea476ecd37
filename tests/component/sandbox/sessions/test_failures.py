"""Models and gateways that fail, each in its own way: a run ends with a clear error."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.model_server import (
    FakeModel,
    ModelResponse,
    Turn,
    call,
    hangs,
    refuses,
    says,
    sends,
)
from tests.support.session_client import Events, SessionClient
from tests.support.waiting import until

LIMIT = "The key's limit of 1 credit is used up."


def check_failed(events: Events, *, retryable: bool, **limit: str) -> str:
    """Return the message of a run that has failed."""
    assert events.kinds()[-1] == "run.ended"
    assert events.last["outcome"] == "failed"
    error = events.last["error"]
    told = {"code": 502, "reason": "turn_failed", "retryable": retryable}
    assert error == {**told, **limit, "message": error["message"]}
    return error["message"]


@pytest.mark.parametrize("status", [400, 402, 404, 408, 429, 503])
async def test_the_gateways_refusal_is_passed_on(
    model: FakeModel, session: SessionClient, status: int
) -> None:
    model.always = refuses(status, LIMIT)
    retryable = status in {408, 429, 503}
    told = check_failed(await session.run("Work."), retryable=retryable, limit_source="test")
    assert told == LIMIT
    if status == 402:  # a budget that fills up again is worth another try
        model.always = refuses(402, LIMIT, Retry_After="30")
        told = check_failed(await session.run("Work."), retryable=True, limit_source="test")
        assert told == LIMIT


async def test_an_error_amid_an_answer_ends_the_run(
    model: FakeModel, session: SessionClient
) -> None:
    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.chunk({"content": "I be"})
        error = {"code": 429, "message": LIMIT}
        await answer.write(f"data: {json.dumps({'error': error, 'choices': []})}\n\n".encode())

    model.turns = [turn, says("Again.")]
    events = await session.run("Work.")
    assert events.text == "I be"
    assert check_failed(events, retryable=True) == LIMIT
    assert (await session.run("Go on.")).text == "Again."


async def test_an_answer_that_breaks_off_is_worth_another_try(
    model: FakeModel, session: SessionClient
) -> None:
    arrived = threading.Event()

    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.chunk({"content": "I be"})
        await until(arrived.is_set)
        answer.disconnect()

    model.always = turn
    async with session.running("Work.") as run:
        await run.until("text")
        arrived.set()
        check_failed(await run.rest(), retryable=True)
    model.turns = [says("Again.")]
    assert (await session.run("Go on.")).text == "Again."


@pytest.mark.parametrize(
    "turn",
    [
        sends(b"<html>Not found</html>", "text/html"),
        sends(b"data: {\n\n"),
        sends(b"data: []\n\ndata: [DONE]\n\n"),
        sends(b"data: {}\n\ndata: [DONE]\n\n"),
        sends(b"data: [DONE]\n\n"),
        sends(b"\xff\xfe\x00data: \xff\n\n"),
        sends(b'data: {"choices": [{"index": 0, "delta": {"content": 5}}]}\n\n'),
        sends(b""),
    ],
    ids=["html", "half", "list", "empty", "nothing", "bytes", "number", "silence"],
)
async def test_garbage_ends_the_run(model: FakeModel, session: SessionClient, turn: Turn) -> None:
    model.always = turn
    events = await session.run("Work.")
    assert events.last["outcome"] == "failed"
    assert events.last["error"]["reason"] == "turn_failed"
    model.turns = [says("Again.")]
    assert (await session.run("Go on.")).text == "Again."


async def test_half_a_character_is_replaced_or_ends_the_run(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says("half \ud83d"), says("Again.")]
    assert (await session.run("Work."))[-1].kind == "run.ended"
    assert (await session.run("Go on.")).text == "Again."


async def test_a_model_that_cannot_be_reached_is_worth_another_try(
    start: Callable[..., DaemonProcess],
) -> None:
    with start(base_url="http://127.0.0.1:9/v1") as daemon:
        check_failed(await SessionClient(daemon).run("Work."), retryable=True)


async def test_a_model_that_says_nothing_more_is_given_up(
    model: FakeModel, start: Callable[..., DaemonProcess]
) -> None:
    model.always = hangs("I think")
    with start(model_seconds=0.5) as daemon:
        events = await SessionClient(daemon).run("Work.")
    assert events.text == "I think"
    check_failed(events, retryable=True)


async def test_an_unknown_tool_is_told_to_the_model(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(call("fly" * 100_000, to="the moon")), says("I cannot.")]
    events = await session.run("Fly.")
    assert (events.outcomes, events.text) == (["failed"], "I cannot.")
    assert events.of("tool.started")[0]["tool"] == ("fly" * 100)[:100]
    assert "fly" in model.messages()[-1]["content"]


async def test_a_call_with_a_very_long_id_ends_the_run(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says_with_id("x" * 20_000), says("Again.")]
    message = check_failed(await session.run("Work."), retryable=True)
    assert "16384 characters" in message
    assert (await session.run("Go on.")).text == "Again."


def says_with_id(identity: str) -> Turn:
    async def turn(answer: ModelResponse) -> None:
        await answer.begin()
        await answer.tool_call("shell", {"command": "true"}, identity)
        await answer.finish()

    return turn


@pytest.mark.parametrize("arguments", ["{", "[]", '"text"', "null", '{"command": 5}', "{}"])
async def test_wrong_arguments_are_told_to_the_model(
    model: FakeModel, session: SessionClient, arguments: str
) -> None:
    model.turns = [says(("shell", arguments)), says("Oh.")]
    events = await session.run("Work.")
    assert (events.outcomes, events.text) == (["failed"], "Oh.")


async def test_a_model_that_never_calls_a_tool_rightly_is_given_up(
    model: FakeModel, session: SessionClient
) -> None:
    model.always = says(call("fly", to="the moon"))
    check_failed(await session.run("Fly."), retryable=True)
    assert len(model.requests) < 20


@pytest.mark.soak
async def test_a_run_without_end_is_ended(model: FakeModel, session: SessionClient) -> None:
    model.always = says(call("read_file", path="nothing"))
    message = check_failed(await session.run("Look."), retryable=False)
    assert "100 times" in message
    assert len(model.requests) == 100


@pytest.mark.parametrize(
    "said",
    [
        ["x" * 100_000] * 45,
        ["x" * 4_300_000],
        [call("shell", command="x" * 4_300_000)],
        [call("fly" * 50_000)] * 30,
    ],
    ids=["pieces", "a piece", "arguments", "names of tools"],
)
async def test_a_very_long_answer_is_stopped(
    model: FakeModel, session: SessionClient, said: list[Any]
) -> None:
    model.turns = [says(*said), says("Short.")]
    events = await session.run("Talk.")
    assert "4194304 bytes" in check_failed(events, retryable=False)
    assert len(events.text) <= 4 * 1024 * 1024
    assert (await session.run("Go on.")).text == "Short."


async def test_what_prints_without_end_is_ended(model: FakeModel, session: SessionClient) -> None:
    model.turns = [says(call("shell", command="yes")), says("Enough.")]
    events = await session.run("Say yes.")
    assert (events.outcomes, events.text) == (["failed"], "Enough.")
    told = model.messages()[-1]["content"]
    assert "bytes are left out" in told
    assert len(told) < 80_000


async def test_what_runs_too_long_is_ended(model: FakeModel, session: SessionClient) -> None:
    command = call("shell", command="echo begun; sleep 1000", timeout_seconds=1)
    model.turns = [says(command), says("Too long.")]
    events = await session.run("Sleep.")
    assert (events.outcomes, events.text) == (["failed"], "Too long.")
    assert "after 1 seconds" in model.messages()[-1]["content"]


async def test_what_stays_in_the_background_keeps_no_run(
    model: FakeModel, session: SessionClient
) -> None:
    model.turns = [says(call("shell", command="sleep 60 & echo begun")), says("Good.")]
    async with asyncio.timeout(30):
        events = await session.run("Begin.")
    assert events.outcomes == ["done"]
    assert "begun" in model.messages()[-1]["content"]


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "runs"),
        ([], "runs"),
        ({"input": ""}, "runs"),
        ({"input": "x" * 32_001}, "runs"),
        ({"input": 5}, "runs"),
        ({"input": "a", "approval_mode": "auto"}, "runs"),
        ({"input": "\ud83d"}, "runs"),
        ({"interaction": "a"}, "answers"),
        ({"interaction": 5, "answer": "cancel"}, "answers"),
    ],
    ids=str,
)
async def test_a_wrong_body_is_refused(session: SessionClient, body: object, path: str) -> None:
    refused = await session.post(path, body)
    assert (refused.status_code, refused.json()["error"]["reason"]) == (400, "bad_request")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/sessions/a%00b/runs", 400),
        ("POST", "/sessions/%ff/runs", 400),
        ("POST", "/sessions//runs", 400),
        ("POST", f"/sessions/{'a' * 257}/runs", 400),
        ("GET", "/sessions/a/events?after=-1", 400),
        pytest.param(
            *("GET", f"/sessions/a/events?after={'0' * 20}{'9' * 30}", 400), id="a long number"
        ),
        pytest.param(*("GET", f"/sessions?limit={'1' * 5000}", 400), id="an endless number"),
        ("GET", "/sessions/a/events?follow=perhaps", 400),
        ("GET", "/sessions?limit=0", 400),
        ("GET", "/sessions/a/runs", 405),
        ("PUT", "/sessions/a/runs/current", 405),
        ("GET", "/sessions/a/what", 404),
    ],
)
async def test_a_wrong_address_is_refused(
    daemon: DaemonProcess, method: str, path: str, status: int
) -> None:
    async with daemon.client() as client:
        response = await client.request(method, path, json={"input": "a"})
    assert response.status_code == status, response.text
    assert response.json()["error"]["reason"] == {404: "not_found"}.get(status, "bad_request")
