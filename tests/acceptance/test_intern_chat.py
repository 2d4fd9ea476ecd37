"""Talking to an intern that runs for real, with the agent that follows scripts as its model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.egress_hosts import BOUND
from tests.acceptance.heard_server import chats_of, start_heard_server
from tests.acceptance.intern_rooms import Rooms, daemons, kill
from tests.acceptance.intern_talks import Talk
from tests.acp_editor import editor_with_command

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.egress_hosts import Hosts
    from tests.acceptance.server_process import ServerProcess

pytestmark = pytest.mark.sandbox
PROGRAM = "write: answer.py\n  print(6 * 7)\nrun: python3 answer.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hosts: Hosts) -> Generator[ServerProcess]:
    with start_heard_server(tmp_path_factory.mktemp("i"), config=hosts.config()) as server:
        yield server


def test_it_writes_a_program_runs_it_and_reports(rooms: Rooms) -> None:
    turn = Talk(rooms, rooms.run()).say(PROGRAM)
    assert turn.finish == "stop"
    assert "\n42\n" in turn.content
    assert "answer.py" in turn.reasoning
    assert rooms.output("ada", "cat answer.py") == "print(6 * 7)\n"


def test_a_manual_run_asks_before_it_goes_out_and_heeds_the_answer(
    rooms: Rooms, hosts: Hosts
) -> None:
    talk = Talk(rooms, rooms.run(), approval_mode="manual")
    before = len(hosts.requests)
    asked = talk.say(f"fetch: {hosts.url(BOUND)}")
    assert (asked.finish, asked.usage) == ("tool_calls", None)
    assert of(asked.asked, "kind") == "permission"
    assert len(hosts.requests) == before
    rejected = talk.answer(asked, "reject_once")
    assert (rejected.finish, len(hosts.requests)) == ("stop", before)
    asked = talk.say(f"fetch: {hosts.url(BOUND)}")
    allowed = talk.answer(asked, "allow_once")
    assert (allowed.finish, len(hosts.requests)) == ("stop", before + 1)


def test_a_shell_without_approval_has_no_network_in_manual_mode(rooms: Rooms, hosts: Hosts) -> None:
    talk = Talk(rooms, rooms.run(), approval_mode="manual")
    before = len(hosts.requests)
    shell = f"curl -sS --max-time 5 {hosts.url(BOUND)} || echo no way out"
    assert "\nno way out\n" in talk.say(f"run: {shell}").content
    assert len(hosts.requests) == before
    asked = talk.say(f"run with network: {shell}")
    assert of(asked.asked, "kind") == "permission"
    assert "\nno way out\n" not in talk.answer(asked, "allow_once").content
    assert len(hosts.requests) == before + 1


def test_a_question_is_answered_and_the_run_goes_on(rooms: Rooms) -> None:
    talk = Talk(rooms, rooms.run())
    asked = talk.say("ask: Which one? (red | blue)\nrun: echo after")
    assert of(asked.asked, "kind") == "elicitation"
    [field] = of(asked.asked, "fields")
    accepted = {"action": "accept", "content": {field["name"]: "blue"}}
    turn = talk.answer(asked, json.dumps(accepted))
    assert (turn.finish, "blue" in turn.content, "\nafter\n" in turn.content) == (
        "stop",
        True,
        True,
    )


def test_a_conversation_goes_on_after_a_suspension(rooms: Rooms) -> None:
    intern = rooms.run()
    talk = Talk(rooms, intern)
    first = talk.say("say: I remember.")
    rooms.suspend(intern)
    rooms.run()
    second = talk.say("say: I do.")
    assert (second.session_id, second.content) == (first.session_id, "I do.\n")
    assert of(second.usage, "prompt_tokens") > of(first.usage, "prompt_tokens")


def test_a_conversation_goes_on_after_its_daemon_was_killed(rooms: Rooms) -> None:
    intern = rooms.run()
    talk = Talk(rooms, intern)
    first = talk.say("say: I remember.")
    [daemon] = daemons(rooms.server.data_dir)
    kill(daemon)
    rooms.until_told(intern, "its sandbox ended.*\nrunning")
    second = talk.say("say: I do.")
    assert (second.session_id, second.content) == (first.session_id, "I do.\n")
    assert of(second.usage, "prompt_tokens") > of(first.usage, "prompt_tokens")


async def test_an_editor_holds_a_session_with_it(rooms: Rooms) -> None:
    rooms.run()
    before = len(chats_of(rooms.server))
    async with editor_with_command(rooms.environment) as editor:
        await editor.begin()
        await editor.agent.set_session_mode(session_id=editor.session_id, mode_id="manual")
        editor.decides = ["reject_once", "allow_once"]
        ended = await editor.say("run with network: echo one\nrun with network: echo two")
    assert ended.stop_reason == "end_turn"
    assert [(call.title, len(options)) for call, options in editor.asked] == [
        ("echo one", 4),
        ("echo two", 4),
    ]
    assert ("\none\n" in editor.text, "\ntwo\n" in editor.text) == (False, True)
    assert len(chats_of(rooms.server)) == before + 3


def of(told: dict[str, Any] | None, name: str) -> Any:
    assert told is not None
    return told[name]
