"""`tollhouse intern chat` against a fake gateway: one prompt, as scripts send it."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.fake_chat_gateway import (
    KEEP_ALIVE,
    USAGE,
    Disconnect,
    Hang,
    error_body,
    form,
    permission,
    raw,
    reasoning,
    refusal,
    steering_accepted,
    stream,
)
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment, restore_sigint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.acceptance.cli.command import CommandResult, CommandRunner
    from tests.support.fake_chat_gateway import FakeChatGateway

    Chat = Callable[..., CommandResult]


@pytest.fixture
def chat(gateway: FakeChatGateway, runner: CommandRunner) -> Chat:
    """Run the command, with a text on standard input."""

    def run(*args: str, given: bytes = b"") -> CommandResult:
        return runner.run("intern", "chat", "ada", *args, env=gateway.environment, given=given)

    return run


def lines(done: CommandResult) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_the_answer_is_all_that_stands_on_standard_output(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    gateway.script(stream(reasoning("shell: ls\n"), "Two ", KEEP_ALIVE, "files."))
    done = chat("Which files?")
    assert (done.code, done.out, done.err) == (0, "Two files.\n", "")
    sent = gateway.requests[0]
    assert sent["messages"] == [{"role": "user", "content": "Which files?"}]
    assert sent["stream"] is True
    assert sent["approval_mode"] == "self-drive"


def test_a_prompt_is_read_from_standard_input(gateway: FakeChatGateway, chat: Chat) -> None:
    gateway.script(stream("Yes."))
    done = chat("--session", "notes", "--manual", given=b"Line one\nLine two\n")
    assert (done.code, done.out) == (0, "Yes.\n")
    sent = gateway.requests[0]
    assert sent["messages"][0]["content"] == "Line one\nLine two"
    assert (sent["session_id"], sent["approval_mode"]) == ("notes", "manual")


def test_each_run_without_a_session_has_a_new_one(gateway: FakeChatGateway, chat: Chat) -> None:
    gateway.script(stream("a"), stream("b"))
    chat("x")
    chat("x")
    first, second = (each["session_id"] for each in gateway.requests)
    assert first != second


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (b" \n", "the prompt is empty"),
        (b"x" * 32_001, "at most 32000 characters"),
        (b"\xff\xfe", "no UTF-8"),
    ],
)
def test_a_prompt_that_cannot_be_sent_is_refused_here(
    gateway: FakeChatGateway, chat: Chat, given: bytes, complaint: str
) -> None:
    assert complaint in chat(given=given).error_line(1)
    assert gateway.requests == []


def test_a_session_that_no_server_takes_is_a_wrong_option(chat: Chat) -> None:
    assert "1 to 256" in chat("x", "--session", "").error_line(2)


def test_permissions_are_refused_where_nobody_can_be_asked(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    gateway.script(stream(ask=permission()), stream("Then not."))
    assert chat("x").out == "Then not.\n"
    assert gateway.received_answers == ["reject_once"]


def test_an_answer_repeats_the_question_and_never_the_prompt(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    asked = permission("call-7")
    gateway.script(stream(ask=asked, session_id="s"), stream("ok", session_id="s"))
    chat("x", "--session", "s")
    echo, answer = gateway.requests[1]["messages"]
    assert gateway.requests[1]["session_id"] == "s"
    assert echo["tool_calls"] == [{k: v for k, v in asked.items() if k != "index"}]
    assert answer == {"role": "tool", "tool_call_id": "call-7", "content": "reject_once"}


def test_yes_allows_each_thing_once_and_declines_forms(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    gateway.script(
        stream(ask=permission("a")),
        stream(ask=permission("b", options=["allow_always", "reject_always"])),
        stream(ask=form("c", {"name": "x", "type": "string", "required": True})),
        stream("done"),
    )
    assert chat("x", "--yes").code == 0
    assert gateway.received_answers == ["allow_once", "cancel", '{"action": "decline"}']


def test_json_has_a_line_for_each_event(gateway: FakeChatGateway, chat: Chat) -> None:
    gateway.script(stream(reasoning("hm"), "Hi"))
    done = chat("x", "--json", "--session", "s")
    assert done.err == ""
    assert lines(done) == [
        {"type": "session", "session_id": "s"},
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "Hi"},
        {"type": "usage", "session_id": "session-of-the-server", "usage": USAGE},
    ]


def test_json_takes_an_answer_from_each_line_of_standard_input(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    field = {"name": "n", "type": "integer", "required": True}
    gateway.script(
        stream(ask=permission("a")),
        stream(ask=form("b", field)),
        stream(ask=permission("c")),
        stream("done"),
    )
    done = chat("x", "--json", given=b'allow_always\n{"n": "x"}\n{"n": 3}\n')
    assert gateway.received_answers == [
        "allow_always",
        '{"action": "accept", "content": {"n": 3}}',
        "reject_once",  # no line was left
    ]
    kinds = [each["type"] for each in lines(done)]
    assert kinds == [
        *("session", "question", "usage", "question", "usage", "error", "question", "usage"),
        *("text", "usage"),
    ]
    asked = lines(done)[1]
    assert (asked["id"], asked["kind"], asked["operation"]) == ("a", "permission", "run: ls")


def test_a_failed_run_is_one_line_and_code_1(gateway: FakeChatGateway, chat: Chat) -> None:
    error = error_body(502, "stream_severed", "The connection to the intern broke", retryable=True)
    gateway.script(stream("Half", error=error))
    done = chat("x")
    assert (done.code, done.out) == (1, "Half\n")
    assert done.err == (
        "The connection to the intern broke. What it did until then stays, and nothing was sent "
        "again: the next prompt of this session goes on.\n"
    )


def test_a_failed_run_is_an_error_in_json(gateway: FakeChatGateway, chat: Chat) -> None:
    gateway.script(stream(error=error_body(502, "turn_failed", "Overloaded.", retryable=True)))
    done = chat("x", "--json")
    assert done.code == 1
    assert {
        "type": "error",
        "code": 502,
        "message": "Overloaded.",
        "reason": "turn_failed",
        "retryable": True,
    } in lines(done)


def test_a_limit_that_is_used_up_is_told_with_what_helps(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    error = error_body(502, "turn_failed", "The payer's limit is used up.")
    error["metadata"] |= {"limit_source": "service_payer_limit", "remedy_hint": "Raise it."}
    gateway.script(stream(error=error), stream(error=error))
    assert chat("x").err == "The payer's limit is used up. Raise it.\n"
    [told] = [line for line in lines(chat("x", "--json")) if line["type"] == "error"]
    assert (told["limit_source"], told["remedy_hint"]) == ("service_payer_limit", "Raise it.")


def test_a_busy_intern_is_said_to_be_busy(gateway: FakeChatGateway, chat: Chat) -> None:
    gateway.script(refusal(409, "busy", "It is at work.", retry_after=5))
    complaint = chat("x").error_line(1)
    assert complaint == "It is at work. `--wait` waits until it is free."


def test_wait_retries_after_the_servers_delay(gateway: FakeChatGateway, chat: Chat) -> None:
    busy = refusal(409, "busy", retry_after=0)
    gateway.script(busy, refusal(429, "rate_limited", retry_after=0), stream("Now."))
    assert chat("x", "--wait").out == "Now.\n"
    assert len(gateway.requests) == 3


def test_wait_never_sends_a_prompt_again_that_was_taken(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    gateway.script(
        stream(ask=permission()), refusal(503, "busy", retry_after=0), stream("Then not.")
    )
    chat("x", "--wait")
    roles = [each["messages"][-1]["role"] for each in gateway.requests]
    assert roles == ["user", "tool", "tool"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (refusal(409, "intern_not_ready", "It is stopped."), "tollhouse intern provision INTERN"),
        (refusal(502, "intern_unreachable", "No way."), "tollhouse intern logs INTERN"),
        (refusal(400, "bad_request", "model: wrong"), "model: wrong."),
        (refusal(504, "timeout", "Too late."), "Too late."),
        (raw(b"<html>", content_type="text/html"), "text/html and not with a stream"),
        (raw(b"data: {no json\n\n"), "no chat of an intern"),
        (raw(b'data: {"choices": [{"delta": 3}]}\n\n'), "no chat of an intern"),
        (raw(b"data: \xff\n\n"), "no chat of an intern"),
        (raw(b""), "Nothing was sent again"),
        (raw(Disconnect), "Nothing was sent again"),
    ],
    ids=[
        *("not-ready", "unreachable", "bad-request", "timeout", "a-page", "no-json", "no-chunk"),
        *("no-utf-8", "nothing", "cut"),
    ],
)
def test_each_failure_is_one_clear_line(
    gateway: FakeChatGateway, chat: Chat, reply: Any, expected: str
) -> None:
    gateway.script(reply)
    assert expected in chat("x").error_line(1)
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("end", [Disconnect, None], ids=["cut", "ended early"])
def test_a_stream_that_is_cut_keeps_what_came_and_sends_nothing_again(
    gateway: FakeChatGateway, chat: Chat, end: Any
) -> None:
    whole = stream("Half", "way").pieces
    gateway.script(raw(*whole[:2], *([end] if end else [])))
    done = chat("x")
    assert (done.code, done.out) == (1, "Half\n")
    assert "Nothing was sent again" in done.err
    assert len(done.err.splitlines()) == 1
    assert len(gateway.requests) == 1


def test_a_prompt_for_a_session_at_work_is_handed_into_its_run(
    gateway: FakeChatGateway, chat: Chat
) -> None:
    gateway.script(steering_accepted("s"), steering_accepted("s"))
    done = chat("x", "--session", "s")
    assert (done.code, done.out) == (0, "")
    assert lines(chat("x", "--session", "s", "--json"))[-1] == {
        "type": "steered",
        "session_id": "s",
    }


def test_ctrl_c_hangs_up_which_stops_the_run(gateway: FakeChatGateway) -> None:
    gateway.script(stream("Working", Hang))
    with subprocess.Popen(
        [forking_program(), "intern", "chat", "ada", "x"],
        env=clean_environment(gateway.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_sigint,  # noqa: PLW1509 - it takes no lock
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.read(7) == "Working"
            process.send_signal(signal.SIGINT)
            gateway.wait_for_hang_up()
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, "")


def test_a_reader_that_has_enough_stops_the_run(gateway: FakeChatGateway) -> None:
    gateway.script(stream("one\n", *(["more\n"] * 3000), Hang))
    process = subprocess.Popen(
        [forking_program(), "intern", "chat", "ada", "x"],
        env=clean_environment(gateway.environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"one\n"
    process.stdout.close()
    gateway.wait_for_hang_up()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), err) == (0, b"")


def test_an_unknown_intern_and_a_wrong_key_are_said(
    gateway: FakeChatGateway, runner: CommandRunner
) -> None:
    done = runner.run("intern", "chat", "bob", "x", env=gateway.environment)
    assert "there is no intern bob here" in done.error_line(1)
    wrong = {**gateway.environment, "TOLLHOUSE_API_KEY": "sk-th-v1-wrong"}
    done = runner.run("intern", "chat", "ada", "x", env=wrong)
    assert "TOLLHOUSE_API_KEY" in done.error_line(1)
