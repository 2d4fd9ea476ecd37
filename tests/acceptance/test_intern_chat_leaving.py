"""Clients that leave an intern that runs for real: in each state of a chat, and what is left then.

Whoever leaves while it streams ends the run, with the command that it runs; whoever leaves after a
question does not; whoever leaves before anything began has begun nothing.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.acceptance.checked_server import start_checked_server
from tests.acceptance.intern_conversation import Conversation
from tests.support.chat_grammar import check_stream
from tests.support.intern_client import sandbox_processes
from tests.support.session_client import Events, assert_complete, parse_events

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.support.intern_client import InternClient
    from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.sandbox
SECONDS = 30.0
SESSION = "work"
COMMAND = "sleep 4711 & sleep 4712"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_checked_server(tmp_path_factory.mktemp("i")) as server:
        yield server


@pytest.fixture
def intern(interns: InternClient) -> str:
    return interns.run()


def prompt(text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"stream": True, "session_id": SESSION, "messages": messages}


def wire(interns: InternClient, intern: str, body: bytes, sent: int) -> socket.socket:
    """Send the beginning of a request on a connection of its own."""
    url = urlsplit(f"{interns.server.base_url}/interns/{intern}/chat/completions")
    assert url.hostname is not None
    connection = socket.create_connection((url.hostname, url.port or 80), SECONDS)
    head = (
        f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAuthorization: Bearer {interns.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body[:sent])
    return connection


@contextmanager
def streaming(
    interns: InternClient, intern: str, body: dict[str, Any]
) -> Generator[Iterator[bytes]]:
    """Yield the stream's bytes; leaving the block hangs up."""
    url = f"{interns.server.base_url}/interns/{intern}/chat/completions"
    headers = {"Authorization": f"Bearer {interns.key}"}
    with httpx2.stream("POST", url, headers=headers, json=body, timeout=SECONDS) as reply:
        assert reply.status_code == 200, reply.read()
        yield reply.iter_bytes()


def until_seen(pieces: Iterator[bytes], mark: bytes) -> bytes:
    heard = b""
    while mark not in heard:
        heard += next(pieces)
    return heard


def commands(interns: InternClient) -> set[str]:
    """Return the commands that are running."""
    running = sandbox_processes(interns.server.data_dir).values()
    return {each.strip() for each in running if each.startswith("sleep 47")}


def until_run(interns: InternClient, wanted: set[str]) -> None:
    ends = time.monotonic() + SECONDS
    while (found := commands(interns)) != wanted:
        assert time.monotonic() < ends, found
        time.sleep(0.02)


def events(interns: InternClient, intern: str) -> Events:
    """Return the events of the session's log; none without a session."""
    reply = interns.daemon(intern, "GET", f"/sessions/{SESSION}/events?follow=false")
    return Events() if reply.status_code == 404 else parse_events(reply.text)


def ending(interns: InternClient, intern: str) -> dict[str, Any]:
    """Wait for the end of the session's only run, and return it."""
    ends = time.monotonic() + SECONDS
    while not (found := events(interns, intern)).of("run.ended"):
        assert time.monotonic() < ends, found
        time.sleep(0.05)
    assert_complete(found)
    [end] = found.of("run.ended")
    return end


def test_hanging_up_within_the_body_starts_no_run(interns: InternClient, intern: str) -> None:
    body = json.dumps(prompt("run: echo begun > begun")).encode()
    with wire(interns, intern, body, len(body) // 2):
        pass
    conversation = Conversation(interns, intern)
    assert conversation.send("say: I am free.").content == "I am free.\n"
    assert events(interns, intern) == []
    assert interns.script_output("ada", "ls") == ""


def test_hanging_up_while_a_command_runs_ends_it(interns: InternClient, intern: str) -> None:
    with streaming(interns, intern, prompt(f"run: {COMMAND}")) as pieces:
        until_seen(pieces, b'"reasoning":"$ ')
        until_run(interns, {"sleep 4711", "sleep 4712"})
    until_run(interns, set())
    ended = ending(interns, intern)
    assert (ended["outcome"], ended["error"]["reason"]) == ("cancelled", "client_closed_request")
    assert Conversation(interns, intern, session_id=SESSION).send("say: on").content == "on\n"


def test_hanging_up_an_answering_request_ends_the_command_too(
    interns: InternClient, intern: str
) -> None:
    conversation = Conversation(interns, intern, approval_mode="manual", session_id=SESSION)
    asked = conversation.send(f"run with network: {COMMAND}")
    assert asked.call is not None
    answer = {"role": "tool", "tool_call_id": asked.call["id"], "content": "allow_once"}
    with streaming(interns, intern, {**prompt(""), "messages": [answer]}):
        until_run(interns, {"sleep 4711", "sleep 4712"})
    until_run(interns, set())
    assert ending(interns, intern)["error"]["reason"] == "client_closed_request"


def test_hanging_up_a_steering_request_leaves_the_run_alone(
    interns: InternClient, intern: str
) -> None:
    with streaming(interns, intern, prompt("run: sleep 1\nrun: echo went on > done")) as pieces:
        heard = until_seen(pieces, b'"reasoning":"$ ')
        steer = json.dumps(prompt("And then?")).encode()
        with wire(interns, intern, steer, len(steer)):
            pass
        told = check_stream(heard + b"".join(pieces))
    assert told.finish == "stop"
    assert interns.script_output("ada", "cat done") == "went on\n"
    assert ending(interns, intern)["outcome"] == "completed"


def test_a_question_may_be_answered_after_hanging_up_at_it(
    interns: InternClient, intern: str
) -> None:
    body = json.dumps(prompt("ask: Which one? (red | blue)")).encode()
    heard = b""
    with wire(interns, intern, body, len(body)) as connection:
        while not heard.endswith(b'"tool_calls":[{'):
            byte = connection.recv(1)
            assert byte, heard
            heard += byte
    [question] = events(interns, intern).of("question")
    answer = {
        "role": "tool",
        "tool_call_id": question["interaction"],
        "content": json.dumps({"action": "accept", "content": {"answer": "blue"}}),
    }
    with streaming(interns, intern, {**prompt(""), "messages": [answer]}) as pieces:
        told = check_stream(b"".join(pieces))
    assert (told.finish, "blue" in told.content) == ("stop", True)
