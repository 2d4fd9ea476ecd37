"""Talking to an intern that runs for real, with the agent that follows scripts as its model.

All tests talk to one intern, which does one run at a time, each in a session of its own.
"""

import json
import socket
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.acceptance.checked_server import chats_of, start_checked_server
from tests.acceptance.egress_hosts import BOUND, EgressHosts
from tests.acceptance.intern_conversation import ChatRefused, Conversation
from tests.support.acp_editor import editor_over_command
from tests.support.chat_grammar import ParsedChat, check_stream
from tests.support.intern_client import InternClient, daemons, kill, sandbox_processes
from tests.support.server_process import ServerProcess
from tests.support.session_client import Events, assert_complete, parse_events
from tests.support.waiting import wait_until

pytestmark = pytest.mark.sandbox
SECONDS = 30.0
PROGRAM = "write: answer.py\n  print(6 * 7)\nrun: python3 answer.py"
ASK = "run with network: echo once >> done"
UNTIL_REFUSED = "until [ -e refused ]; do sleep 0.02; done; rm refused"
COMMAND = "sleep 4711 & sleep 4712"


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


# One run at a time, one answer to a question


def done(interns: InternClient) -> list[str]:
    """Return the lines that the commands of a test's runs have written."""
    return interns.script_output("ada", "cat done; rm done").split()


def test_of_two_prompts_at_once_one_runs(interns: InternClient) -> None:
    intern = interns.run()
    both = Barrier(2)

    def ask(number: int) -> ParsedChat | ChatRefused:
        conversation = Conversation(interns, intern)
        both.wait()
        try:
            return conversation.send(f"run: {UNTIL_REFUSED}; echo {number} >> done")
        except ChatRefused as refused:
            interns.put_file(intern, "refused", b"")
            return refused

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(ask, range(2)))
    [refused] = [each for each in outcomes if isinstance(each, ChatRefused)]
    [ran] = [number for number, each in enumerate(outcomes) if each is not refused]
    assert (refused.reply.status_code, refused.reason) == (409, "busy")
    assert int(refused.reply.headers["retry-after"]) > 0
    assert done(interns) == [str(ran)]


def test_a_question_is_answered_once(interns: InternClient) -> None:
    conversation = Conversation(interns, interns.run(), approval_mode="manual")
    asked = conversation.send(ASK)
    assert conversation.answer(asked, "allow_once").finish == "stop"
    assert refusal(conversation, asked, "allow_once") == (409, "interaction_not_pending")
    assert done(interns) == ["once"]


def test_a_repeated_answer_does_not_disturb_the_run_that_goes_on(interns: InternClient) -> None:
    intern = interns.run()
    conversation = Conversation(interns, intern, approval_mode="manual")
    asked = conversation.send(f"{ASK}; {UNTIL_REFUSED}")
    both = Barrier(2)

    def answer(_: int) -> Any:
        both.wait()
        try:
            return conversation.answer(asked, "allow_once").finish
        except ChatRefused as refused:
            interns.put_file(intern, "refused", b"")
            return refused.reason

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(answer, range(2)))
    assert outcomes in (["busy", "stop"], ["interaction_not_pending", "stop"])
    assert done(interns) == ["once"]


def test_an_answer_to_a_run_that_has_ended_comes_too_late(interns: InternClient) -> None:
    intern = interns.run()
    conversation = Conversation(interns, intern, approval_mode="manual")
    asked = conversation.send(ASK)
    path = f"/sessions/{conversation.session}/runs/current"
    assert interns.daemon(intern, "DELETE", path).is_success
    assert refusal(conversation, asked, "allow_once") == (409, "interaction_not_pending")
    assert conversation.send("run: echo next >> done").finish == "stop"
    assert done(interns) == ["next"]


# Clients that leave: whoever does while it streams ends the run, with the command that it runs;
# whoever does after a question does not; whoever does before anything began has begun nothing.


class Leaver:
    """A client of one session that hangs up."""

    def __init__(self, interns: InternClient, session: str) -> None:
        self.interns = interns
        self.session = session
        self.intern = interns.run()
        self._url = f"{interns.server.base_url}/interns/{self.intern}/chat/completions"

    def prompt(self, text: str) -> dict[str, Any]:
        return self._body({"role": "user", "content": text})

    def answer(self, call: str, content: str) -> dict[str, Any]:
        return self._body({"role": "tool", "tool_call_id": call, "content": content})

    def wire(self, body: bytes, sent: int) -> socket.socket:
        """Send the beginning of a request on a connection of its own."""
        url = urlsplit(self._url)
        assert url.hostname is not None
        connection = socket.create_connection((url.hostname, url.port or 80), SECONDS)
        head = (
            f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\n"
            f"Authorization: Bearer {self.interns.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        connection.sendall(head.encode() + body[:sent])
        return connection

    @contextmanager
    def streaming(self, body: dict[str, Any]) -> Generator[Iterator[bytes]]:
        """Yield the stream's bytes; leaving the block hangs up."""
        headers = {"Authorization": f"Bearer {self.interns.key}"}
        with httpx2.stream("POST", self._url, headers=headers, json=body, timeout=SECONDS) as reply:
            assert reply.status_code == 200, reply.read()
            yield reply.iter_bytes()

    def events(self) -> Events:
        """Return the events of the session's log; none without a session."""
        path = f"/sessions/{self.session}/events?follow=false"
        reply = self.interns.daemon(self.intern, "GET", path)
        return Events() if reply.status_code == 404 else parse_events(reply.text)

    def ending(self) -> dict[str, Any]:
        """Wait for the end of the session's only run, and return it."""
        wait_until(lambda: self.events().of("run.ended"), pause=0.05)
        found = self.events()
        assert_complete(found)
        [end] = found.of("run.ended")
        return end

    def until_run(self, wanted: set[str]) -> None:
        """Wait until only these of the commands are running."""

        def found() -> set[str]:
            running = sandbox_processes(self.interns.server.data_dir).values()
            return {each.strip() for each in running if each.startswith("sleep 47")}

        wait_until(lambda: found() == wanted, pause=0.05)

    def _body(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"stream": True, "session_id": self.session, "messages": [message]}


@pytest.fixture
def leaver(interns: InternClient, request: pytest.FixtureRequest) -> Leaver:
    return Leaver(interns, request.node.name)


def until_seen(pieces: Iterator[bytes], mark: bytes) -> bytes:
    heard = b""
    while mark not in heard:
        heard += next(pieces)
    return heard


def test_hanging_up_within_the_body_starts_no_run(leaver: Leaver) -> None:
    body = json.dumps(leaver.prompt("run: echo begun > begun")).encode()
    with leaver.wire(body, len(body) // 2):
        pass
    conversation = Conversation(leaver.interns, leaver.intern)
    assert conversation.send("say: I am free.").content == "I am free.\n"
    assert leaver.events() == []
    assert "begun" not in leaver.interns.script_output("ada", "ls").split()


def test_hanging_up_while_a_command_runs_ends_it(leaver: Leaver) -> None:
    with leaver.streaming(leaver.prompt(f"run: {COMMAND}")) as pieces:
        until_seen(pieces, b'"reasoning":"$ ')
        leaver.until_run({"sleep 4711", "sleep 4712"})
    leaver.until_run(set())
    ended = leaver.ending()
    assert (ended["outcome"], ended["error"]["reason"]) == ("cancelled", "client_closed_request")
    assert (
        Conversation(leaver.interns, leaver.intern, session_id=leaver.session)
        .send("say: on")
        .content
        == "on\n"
    )


def test_hanging_up_an_answering_request_ends_the_command_too(leaver: Leaver) -> None:
    conversation = Conversation(
        leaver.interns, leaver.intern, approval_mode="manual", session_id=leaver.session
    )
    asked = conversation.send(f"run with network: {COMMAND}")
    assert asked.call is not None
    with leaver.streaming(leaver.answer(asked.call["id"], "allow_once")):
        leaver.until_run({"sleep 4711", "sleep 4712"})
    leaver.until_run(set())
    assert leaver.ending()["error"]["reason"] == "client_closed_request"


def test_hanging_up_a_steering_request_leaves_the_run_alone(leaver: Leaver) -> None:
    with leaver.streaming(leaver.prompt("run: sleep 1\nrun: echo went on > done")) as pieces:
        heard = until_seen(pieces, b'"reasoning":"$ ')
        steer = json.dumps(leaver.prompt("And then?")).encode()
        with leaver.wire(steer, len(steer)):
            pass
        told = check_stream(heard + b"".join(pieces))
    assert told.finish == "stop"
    assert leaver.interns.script_output("ada", "cat done; rm done") == "went on\n"
    assert leaver.ending()["outcome"] == "completed"


def test_a_question_may_be_answered_after_hanging_up_at_it(leaver: Leaver) -> None:
    body = json.dumps(leaver.prompt("ask: Which one? (red | blue)")).encode()
    heard = b""
    with leaver.wire(body, len(body)) as connection:
        while not heard.endswith(b'"tool_calls":[{'):
            byte = connection.recv(1)
            assert byte, heard
            heard += byte
    [question] = leaver.events().of("question")
    content = json.dumps({"action": "accept", "content": {"answer": "blue"}})
    with leaver.streaming(leaver.answer(question["interaction"], content)) as pieces:
        told = check_stream(b"".join(pieces))
    assert (told.finish, "blue" in told.content) == ("stop", True)


def of(told: dict[str, Any] | None, name: str) -> Any:
    assert told is not None
    return told[name]


def refusal(conversation: Conversation, asked: ParsedChat, content: str) -> tuple[int, str]:
    with pytest.raises(ChatRefused) as refused:
        conversation.answer(asked, content)
    return refused.value.reply.status_code, refused.value.reason
