"""`tollhouse intern chat` on a terminal: what a person sees, is asked, and types."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.support.fake_chat_gateway import (
    FakeChatGateway,
    Hang,
    error_body,
    form,
    permission,
    reasoning,
    refusal,
    stream,
)
from tests.support.terminal import Terminal

CTRL_C = b"\x03"
CTRL_D = b"\x04"
MARK_PASTES = "\x1b[?2004h"
"""Asks a terminal for bracketed paste."""
DIM = "\x1b[2m"
PLAIN = "\x1b[22m"


@pytest.fixture
def chat(gateway: FakeChatGateway) -> Iterator[Callable[..., Terminal]]:
    """Start the command on a terminal of its own."""
    terminals = list[Terminal]()

    def start(*args: str) -> Terminal:
        command = ("intern", "chat", "ada", *args)
        terminals.append(Terminal(command, gateway.environment))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
        assert "Traceback" not in terminal.text


def test_a_conversation_goes_on_in_one_session(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Hello."), stream("Bye."))
    terminal = chat()
    terminal.read_until("ada> ")
    start = terminal.text
    ask(terminal, "hi")
    terminal.read_until("Hello.\r\n")
    terminal.read_until(
        "[1,200 tokens in (1,000 cached), 34 out, $0.00125; session session-of-the-server]"
    )
    ask(terminal, "bye")
    terminal.read_until("Bye.\r\n")
    leave(terminal)
    first, second = gateway.requests
    assert f"Session {first['session_id']}." in start
    assert second["session_id"] == "session-of-the-server"
    assert second["messages"] == [{"role": "user", "content": "bye"}]


def test_reasoning_is_dimmed_and_has_its_own_lines(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("So ", reasoning("shell: ls"), "two files."))
    terminal = chat("x")
    assert terminal.end() == 0
    assert f"So \r\n{DIM}shell: ls{PLAIN}\r\ntwo files.\r\n" in terminal.text


def test_a_model_cannot_steer_the_terminal(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(
        stream(
            "a\x1b]0;title\x07b\tc\nd\x9b31m",
            reasoning("\x1b[2J"),
            ask=permission(operation="ls\x1b[8m; rm"),
        ),
        stream("e\u202ef"),
    )
    terminal = chat("x")
    terminal.read_until("? ")
    terminal.type("c\n")
    assert terminal.end() == 0
    ours = terminal.text.replace(DIM, "").replace(PLAIN, "")
    assert "a^[]0;title^Gb\tc\r\nd\\u009b31m" in ours
    assert "ls^[[8m; rm" in ours
    assert "e\\u202ef" in ours
    for control in ("\x07", "\x9b", "\x1b[2J", "\x1b[8m", "\x1b]", "\u202e"):
        assert control not in terminal.text


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("1", "allow_once"),
        ("allow always", "allow_always"),
        ("n", "reject_once"),
        ("reject_always", "reject_always"),
        ("c", "cancel"),
    ],
)
def test_a_permission_is_asked_with_the_options_that_are_offered(
    gateway: FakeChatGateway, chat: Callable[..., Terminal], typed: str, answer: str
) -> None:
    gateway.script(stream(ask=permission(operation="delete: notes")), stream("Well."))
    terminal = chat("x", "--manual")
    terminal.read_until("ada asks: may I? delete: notes")
    terminal.read_until("1) allow once   2) allow always   3) reject once   4) reject always   c)")
    terminal.type("what?\n")
    terminal.read_until("choose one of allow_once")
    terminal.type(f"{typed}\n")
    terminal.read_until("Well.")
    assert terminal.end() == 0
    assert gateway.received_answers == [answer]


def test_a_form_is_asked_field_by_field(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    fields = [
        {"name": "city", "type": "string", "required": True},
        {"name": "days", "type": "integer", "required": True},
        {"name": "class", "type": "string", "required": True, "options": ["first", "second"]},
        {"name": "note", "type": "string", "required": False},
        {"name": "train", "type": "boolean", "required": True},
    ]
    gateway.script(stream(ask=form("f", *fields, message="Where to?")), stream("Booked."))
    terminal = chat("x")
    terminal.read_until("ada asks: Where to?")
    terminal.read_until("city (string, required): ")
    terminal.type("\n")
    terminal.read_until("city is required")
    terminal.type("Rome\n")
    terminal.read_until("days (integer, required): ")
    terminal.type("many\n")
    terminal.read_until("days: a whole number")
    terminal.type("3\n")
    terminal.read_until("class (first, second, required): ")
    terminal.type("2\n")
    terminal.read_until("note (string): ")
    terminal.type("\n")
    terminal.read_until("train (boolean, required): ")
    terminal.type("y\n")
    terminal.read_until("Booked.")
    assert terminal.end() == 0
    content = {"city": "Rome", "days": 3, "class": "second", "train": True}
    assert gateway.received_answers == [json.dumps({"action": "accept", "content": content})]


def test_a_question_cannot_pass_for_another_one(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(
        stream(ask=permission(operation="run: rm\n  1) reject once")),
        stream(ask=form("f", {"name": "a\x1b[2Jb\nc", "type": "string", "required": False})),
        stream("Well."),
    )
    terminal = chat("x")
    terminal.read_until("may I? run: rm\r\n    |   1) reject once\r\n  1) allow once")
    terminal.type("n\n")
    terminal.read_until("a [2Jb c (string): ")
    terminal.type("\n")
    terminal.read_until("Well.")
    assert terminal.end() == 0


def test_the_end_of_the_input_declines_a_form(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream(ask=form("f", {"name": "a", "type": "string"})), stream("Fine."))
    terminal = chat("x")
    terminal.read_until("a (string): ")
    terminal.press(CTRL_D)
    terminal.read_until("Fine.")
    assert gateway.received_answers == ['{"action": "decline"}']


def test_an_answer_that_the_server_refuses_is_asked_for_again(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(
        stream(ask=form("f", {"name": "day", "type": "date"})),
        refusal(400, "bad_request", "day: not a date"),
        stream("Thanks."),
    )
    terminal = chat("x")
    terminal.read_until("day (date): ")
    terminal.type("soon\n")
    terminal.read_until("day: not a date.")
    terminal.read_until("day (date): ")
    terminal.type("2027-01-01\n")
    terminal.read_until("Thanks.")
    assert terminal.end() == 0


def test_an_answer_that_comes_too_late_is_said_to_be(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    late = refusal(409, "interaction_not_pending", "It is not pending any more.")
    gateway.script(stream(ask=permission()), late)
    terminal = chat("x")
    terminal.read_until("? ")
    terminal.type("y\n")
    assert terminal.end() == 1
    assert "The question had waited too long, so its run is over." in terminal.text


def test_ctrl_c_stops_a_turn_and_the_conversation_goes_on(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Working", Hang), stream("Again."))
    terminal = chat()
    ask(terminal, "work")
    terminal.read_until("Working")
    terminal.press(CTRL_C)
    gateway.wait_for_hang_up()
    terminal.read_until("Stopped.")
    ask(terminal, "again")
    terminal.read_until("Again.")
    leave(terminal)


def test_after_a_stop_the_prompt_waits_until_the_server_has_noticed(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Working", Hang), refusal(409, "busy", retry_after=0), stream("Again."))
    terminal = chat()
    ask(terminal, "work")
    terminal.read_until("Working")
    terminal.press(CTRL_C)
    terminal.read_until("Stopped.")
    ask(terminal, "again")
    terminal.read_until("It is busy; trying again")
    terminal.read_until("Again.")


def test_ctrl_c_at_a_question_stops_the_run(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream(ask=permission()), stream("Going on", Hang))
    terminal = chat()
    ask(terminal, "work")
    terminal.read_until("c) cancel\r\n")
    interrupt(terminal, lambda: gateway.hung_up.acquire(timeout=5))
    terminal.read_until("Stopped.")
    assert gateway.received_answers == ["cancel"]
    assert "Going on" not in terminal.text
    leave(terminal)


def test_ctrl_c_at_an_idle_prompt_leaves(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Working", Hang))
    terminal = chat()
    ask(terminal, "work")
    terminal.read_until("Working")
    terminal.press(CTRL_C)
    terminal.read_until("Stopped.")
    terminal.read_until("ada> ")
    interrupt(terminal, lambda: terminal.has_ended(5))
    assert terminal.end() == 130


def test_a_turn_that_fails_does_not_end_the_conversation(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    error = error_body(502, "turn_failed", "The model is overloaded.", retryable=True)
    gateway.script(stream(error=error), refusal(504, "timeout", "Too late."), stream("Well."))
    terminal = chat()
    for expected in ("The model is overloaded. The same may work later.", "Too late.", "Well."):
        ask(terminal, "go")
        terminal.read_until(expected)


def test_an_empty_line_sends_nothing(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    terminal = chat()
    terminal.read_until("ada> ")
    terminal.type("\n  \n")
    leave(terminal)
    assert gateway.requests == []


def test_what_is_pasted_is_one_prompt(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Read."))
    terminal = chat()
    terminal.read_until(MARK_PASTES)
    terminal.read_until("ada> ")
    terminal.text = ""
    terminal.press(b"\x1b[200~one\rtwo\rthree\x1b[201~")
    terminal.type("\n")
    terminal.read_until("Read.")
    leave(terminal)
    assert prompts(gateway) == ["one\ntwo\nthree"]


def test_a_line_that_ends_with_a_backslash_goes_on(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Read."))
    terminal = chat()
    ask(terminal, "one\\")
    terminal.read_until("... ")
    terminal.type("two\n")
    terminal.read_until("Read.")
    leave(terminal)
    assert prompts(gateway) == ["one\ntwo"]


def test_slash_commands_are_not_sent(
    gateway: FakeChatGateway, chat: Callable[..., Terminal]
) -> None:
    gateway.script(stream("Hello."), stream("Bye."))
    terminal = chat("--session", "notes")
    ask(terminal, "/help")
    terminal.read_until("begin another session")
    ask(terminal, "/exti")
    terminal.read_until("There is no /exti, and nothing was sent.")
    ask(terminal, "/model")
    terminal.read_until("model")
    ask(terminal, "/workspace/x is wrong")
    terminal.read_until("Hello.")
    ask(terminal, "/cost")
    terminal.read_until("1 turns: 1,200 tokens in, 34 out, $0.00125")
    ask(terminal, "/new")
    terminal.read_until("Session ")
    ask(terminal, "bye")
    terminal.read_until("Bye.")
    ask(terminal, "/exit")
    assert terminal.end() == 0
    assert prompts(gateway) == ["/workspace/x is wrong", "bye"]
    first, second = (each["session_id"] for each in gateway.requests)
    assert first == "notes"
    assert second not in {"notes", "session-of-the-server"}


def prompts(gateway: FakeChatGateway) -> list[str]:
    return [each["messages"][0]["content"] for each in gateway.requests]


def ask(terminal: Terminal, prompt: str) -> None:
    """Type a prompt once there is somebody to read it."""
    terminal.read_until("ada> ")
    terminal.text = ""
    terminal.type(f"{prompt}\n")


def leave(terminal: Terminal) -> None:
    """Press Ctrl-D; again if it came before the prompt, where the terminal takes it for itself."""
    terminal.read_until("ada> ")
    terminal.press(CTRL_D)
    while not terminal.has_ended(5):
        terminal.press(CTRL_D)
    assert terminal.end() == 0


def interrupt(terminal: Terminal, has_arrived: Callable[[], bool]) -> None:
    """Press Ctrl-C at a prompt.

    One that comes between a prompt and the wait for the first key is noticed by Python with that
    key. A second Ctrl-C could be one too many where the first was only slow; an empty line is not.
    """
    terminal.press(CTRL_C)
    while not has_arrived():
        assert not terminal.has_ended(0), terminal.text
        terminal.type("\n")
