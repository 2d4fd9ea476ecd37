"""Talking to an intern that runs for real, with the agent that follows scripts as its model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.checked_server import chats_of, start_checked_server
from tests.acceptance.egress_hosts import BOUND
from tests.acceptance.intern_conversation import Conversation
from tests.support.acp_editor import editor_over_command
from tests.support.intern_client import InternClient, daemons, kill

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.egress_hosts import EgressHosts
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.sandbox
PROGRAM = "write: answer.py\n  print(6 * 7)\nrun: python3 answer.py"


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts
) -> Generator[ServerProcess]:
    with start_checked_server(tmp_path_factory.mktemp("i"), config=hosts.config()) as server:
        yield server


def test_an_agent_writes_a_program_runs_it_and_reports(interns: InternClient) -> None:
    turn = Conversation(interns, interns.run()).send(PROGRAM)
    assert turn.finish == "stop"
    assert "\n42\n" in turn.content
    assert "answer.py" in turn.reasoning
    assert interns.script_output("ada", "cat answer.py") == "print(6 * 7)\n"


def test_a_manual_run_asks_before_it_goes_out_and_heeds_the_answer(
    interns: InternClient, hosts: EgressHosts
) -> None:
    conversation = Conversation(interns, interns.run(), approval_mode="manual")
    before = len(hosts.requests)
    asked = conversation.send(f"fetch: {hosts.url(BOUND)}")
    assert (asked.finish, asked.usage) == ("tool_calls", None)
    assert of(asked.asked, "kind") == "permission"
    assert len(hosts.requests) == before
    rejected = conversation.answer(asked, "reject_once")
    assert (rejected.finish, len(hosts.requests)) == ("stop", before)
    asked = conversation.send(f"fetch: {hosts.url(BOUND)}")
    allowed = conversation.answer(asked, "allow_once")
    assert (allowed.finish, len(hosts.requests)) == ("stop", before + 1)


def test_a_shell_without_approval_has_no_network_in_manual_mode(
    interns: InternClient, hosts: EgressHosts
) -> None:
    conversation = Conversation(interns, interns.run(), approval_mode="manual")
    before = len(hosts.requests)
    shell = f"curl -sS --max-time 5 {hosts.url(BOUND)} || echo no way out"
    assert "\nno way out\n" in conversation.send(f"run: {shell}").content
    assert len(hosts.requests) == before
    asked = conversation.send(f"run with network: {shell}")
    assert of(asked.asked, "kind") == "permission"
    assert "\nno way out\n" not in conversation.answer(asked, "allow_once").content
    assert len(hosts.requests) == before + 1


def test_a_question_is_answered_and_the_run_goes_on(interns: InternClient) -> None:
    conversation = Conversation(interns, interns.run())
    asked = conversation.send("ask: Which one? (red | blue)\nrun: echo after")
    assert of(asked.asked, "kind") == "elicitation"
    [field] = of(asked.asked, "fields")
    accepted = {"action": "accept", "content": {field["name"]: "blue"}}
    turn = conversation.answer(asked, json.dumps(accepted))
    assert (turn.finish, "blue" in turn.content, "\nafter\n" in turn.content) == (
        "stop",
        True,
        True,
    )


def test_a_conversation_goes_on_after_a_suspension(interns: InternClient) -> None:
    intern = interns.run()
    conversation = Conversation(interns, intern)
    first = conversation.send("say: I remember.")
    interns.suspend(intern)
    interns.run()
    second = conversation.send("say: I do.")
    assert (second.session_id, second.content) == (first.session_id, "I do.\n")
    assert of(second.usage, "prompt_tokens") > of(first.usage, "prompt_tokens")


def test_a_conversation_goes_on_after_its_daemon_was_killed(interns: InternClient) -> None:
    intern = interns.run()
    conversation = Conversation(interns, intern)
    first = conversation.send("say: I remember.")
    [daemon] = daemons(interns.server.data_dir)
    kill(daemon)
    interns.until_logged(intern, "its sandbox ended.*\nrunning")
    second = conversation.send("say: I do.")
    assert (second.session_id, second.content) == (first.session_id, "I do.\n")
    assert of(second.usage, "prompt_tokens") > of(first.usage, "prompt_tokens")


async def test_an_editor_holds_a_session_with_an_intern(interns: InternClient) -> None:
    interns.run()
    before = len(chats_of(interns.server))
    async with editor_over_command(interns.environment) as editor:
        await editor.new_session()
        await editor.agent.set_session_mode(session_id=editor.session_id, mode_id="manual")
        editor.decides = ["reject_once", "allow_once"]
        ended = await editor.prompt("run with network: echo one\nrun with network: echo two")
    assert ended.stop_reason == "end_turn"
    assert [(call.title, len(options)) for call, options in editor.asked] == [
        ("echo one", 4),
        ("echo two", 4),
    ]
    assert ("\none\n" in editor.text, "\ntwo\n" in editor.text) == (False, True)
    assert len(chats_of(interns.server)) == before + 3


def of(told: dict[str, Any] | None, name: str) -> Any:
    assert told is not None
    return told[name]
