"""Kills of server, daemon and agent in the middle of runs, with a whole server and real sandboxes.

After each: the session's log has no hole and nothing twice, nothing was done twice, and the next
prompt of the session is answered.
"""

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx2
import pytest

from tests.acceptance.intern_conversation import ChatRefused, Conversation
from tests.support.chat_grammar import ParsedChat, check_stream
from tests.support.intern_client import InternClient, agents, daemons, kill
from tests.support.server_process import ServerProcess, start_server
from tests.support.session_client import assert_complete, parse_events
from tests.support.waiting import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.sandbox
SESSION: Final = "work"
STEPS: Final = 5
VICTIMS: Final = ("server", "daemon", "agent")


class Kill(NamedTuple):
    """The process to kill, and after how many started commands."""

    victim: str
    begun: int


THREE: Final = [Kill("server", 2), Kill("daemon", 3), Kill("agent", 1)]


class ChatCrashes:
    """One intern and one session, in which runs are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: ServerProcess = start_server(folder)
        self._key = self.server.api_key
        self.intern = ""
        self._prompts = 0

    @property
    def interns(self) -> InternClient:
        return InternClient(self.server, self._key)

    def begin(self) -> None:
        self.intern = self.interns.run()

    def go(self, chosen: Kill) -> None:
        self._prompts += 1
        number = self._prompts
        commands = [f"run: sleep 0.1; echo {number}-{step} >> done" for step in range(STEPS)]
        heard = self._run("\n".join(commands), chosen)
        if chosen.victim == "server":
            self.server.kill()
            self.server = start_server(self.folder)
        else:
            told = check_stream(heard)
            assert told.finish == "stop" or told.reason == "stream_severed", told
        self._answers_again(number)
        self._check_log()
        done = self.interns.daemon(self.intern, "GET", "/files/done").text.split()
        assert len(set(done)) == len(done), done

    def _run(self, prompt: str, chosen: Kill) -> bytes:
        """Send a prompt, and kill during the stream; return what was received."""
        body = {
            "stream": True,
            "session_id": SESSION,
            "messages": [{"role": "user", "content": prompt}],
        }
        heard = b""
        struck = False
        url = f"{self.server.base_url}/interns/{self.intern}/chat/completions"
        headers = {"Authorization": f"Bearer {self._key}"}
        with (
            suppress(httpx2.TransportError),  # of a server that is gone
            httpx2.stream("POST", url, headers=headers, json=body, timeout=60) as reply,
        ):
            assert reply.status_code == 200, reply.read()
            for piece in reply.iter_bytes():
                heard += piece
                if not struck and heard.count(b'"reasoning":"$ ') >= min(chosen.begun, STEPS):
                    struck = True
                    self._strike(chosen)
        assert struck, heard
        return heard

    def _strike(self, chosen: Kill) -> None:
        if chosen.begun > STEPS:
            time.sleep(0.15)  # after the last command, or close to its end
        if chosen.victim == "server":
            kill(self.server.process.pid)
            return
        find = daemons if chosen.victim == "daemon" else agents
        for pid in wait_until(lambda: find(self.server.data_dir)):  # it is just being started
            kill(pid)

    def _answers_again(self, number: int) -> None:
        """Wait until the next prompt is answered; an intern that boots, or ends a run, is busy."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            told = self._told(f"say: on {number}")
            if told is not None and told.finish == "stop":
                # A prompt that was killed before it was in the conversation is followed, too.
                assert f"on {number}\n" in told.content
                return
            assert time.monotonic() < ends, self.server.stderr_text()[-3_000:]
            if self._status() == "failed":  # a sandbox that ends again and again is left to people
                self.interns.request("POST", f"/interns/{self.intern}/provision")
            time.sleep(0.1)

    def _status(self) -> str:
        found = self.interns.get(self.intern)
        assert found is not None
        return found["status"]

    def _told(self, text: str) -> ParsedChat | None:
        conversation = Conversation(self.interns, self.intern)
        conversation.session = SESSION
        try:
            return conversation.send(text)
        except ChatRefused:
            return None

    def _check_log(self) -> None:
        path = f"/sessions/{SESSION}/events?follow=false"
        assert_complete(parse_events(self.interns.daemon(self.intern, "GET", path).text))


def killed(folder: Path, schedule: Sequence[Kill]) -> None:
    trial = ChatCrashes(folder)
    try:
        trial.begin()
        for chosen in schedule:
            trial.go(chosen)
    finally:
        trial.server.kill()


def test_a_conversation_outlives_some_kills(tmp_path_factory: pytest.TempPathFactory) -> None:
    killed(tmp_path_factory.mktemp("c"), THREE)


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", VICTIMS)
def test_a_conversation_outlives_a_kill_of_a_process_after_each_command(
    tmp_path_factory: pytest.TempPathFactory, victim: str
) -> None:
    schedule = [Kill(victim, begun) for begun in range(STEPS + 2)]
    random.Random(victim).shuffle(schedule)
    killed(tmp_path_factory.mktemp("c"), schedule)
