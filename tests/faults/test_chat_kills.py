"""Kills of server, daemon and agent in the middle of runs, with a whole server and real sandboxes.

After each: the session's log has no hole and nothing twice, nothing was done twice, and the next
prompt of the session is answered.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx2
import pytest

from tests.acceptance.intern_rooms import Rooms, is_bubblewrap, kill, sandboxed
from tests.acceptance.intern_talks import Refused, Talk
from tests.acceptance.server_process import start_server
from tests.chat_grammar import check_stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.acceptance.server_process import ServerProcess
    from tests.chat_grammar import Told

pytestmark = pytest.mark.sandbox
SESSION: Final = "work"
STEPS: Final = 5
VICTIMS: Final = ("server", "daemon", "agent")


class Kill(NamedTuple):
    """What is killed, and after how many commands have begun."""

    victim: str
    begun: int


EVERY: Final = [Kill(victim, begun) for victim in VICTIMS for begun in range(STEPS + 2)]
THREE: Final = [Kill("server", 2), Kill("daemon", 3), Kill("agent", 1)]


class Trial:
    """One intern and one session, in which runs are killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server: ServerProcess = start_server(folder)
        self._key = self.server.api_key
        self.intern = self.rooms.run()
        self._prompts = 0

    @property
    def rooms(self) -> Rooms:
        return Rooms(self.server, self._key)

    def go(self, chosen: Kill) -> None:
        self._prompts += 1
        number = self._prompts
        commands = [f"run: sleep 0.1; echo {number}-{step} >> done" for step in range(STEPS)]
        heard = self._run("\n".join(commands), chosen)
        if chosen.victim == "server":
            self.server.kill()
            self.server = start_server(self.folder)
        elif heard:
            check_stream(heard)
        self._answers_again(number)
        self._check_log()
        done = self.rooms.daemon(self.intern, "GET", "/files/done").text.split()
        assert len(set(done)) == len(done), done

    def _run(self, prompt: str, chosen: Kill) -> bytes:
        """Send a prompt, and kill amid what comes; return all of it."""
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
        mark = f"interns.{chosen.victim}"
        ends = time.monotonic() + 5
        while time.monotonic() < ends:
            found = [
                pid
                for pid, command in sandboxed(self.server.data_dir).items()
                if mark in command and not is_bubblewrap(command)
            ]
            for pid in found:
                kill(pid)
            if found:
                return
            time.sleep(0.01)  # the agent is just being started

    def _answers_again(self, number: int) -> None:
        """Wait until the next prompt is answered; an intern that boots, or ends a run, is busy."""
        ends = time.monotonic() + 60
        while True:
            told = self._told(f"say: on {number}")
            if told is not None and told.finish == "stop":
                # A prompt that was killed before it was in the conversation is followed, too.
                assert f"on {number}\n" in told.content
                return
            assert time.monotonic() < ends, self.server.stderr_text()[-3_000:]
            if self._status() == "failed":  # a sandbox that ends again and again is left to people
                self.rooms.ask("POST", f"/interns/{self.intern}/provision")
            time.sleep(0.1)

    def _status(self) -> str:
        found = self.rooms.get(self.intern)
        assert found is not None
        return found["status"]

    def _told(self, text: str) -> Told | None:
        talk = Talk(self.rooms, self.intern)
        talk.session = SESSION
        try:
            return talk.say(text)
        except Refused:
            return None

    def _check_log(self) -> None:
        path = f"/sessions/{SESSION}/events?follow=false"
        text = self.rooms.daemon(self.intern, "GET", path).text
        numbers = [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
        assert numbers == list(range(1, len(numbers) + 1))
        kinds = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
        told = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
        begun = [
            each["run"] for kind, each in zip(kinds, told, strict=True) if kind == "run.started"
        ]
        ended = [each["run"] for kind, each in zip(kinds, told, strict=True) if kind == "run.ended"]
        assert begun == ended
        assert len(set(begun)) == len(begun)


def killed(folder: Path, schedule: Sequence[Kill]) -> None:
    trial = Trial(folder)
    try:
        for chosen in schedule:
            trial.go(chosen)
    finally:
        trial.server.kill()


def test_a_conversation_outlives_some_kills(tmp_path_factory: pytest.TempPathFactory) -> None:
    killed(tmp_path_factory.mktemp("c"), THREE)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_conversation_outlives_a_kill_of_each_process_after_each_command(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    schedule = list(EVERY)
    random.Random("conversation").shuffle(schedule)
    killed(tmp_path_factory.mktemp("c"), schedule)
