"""Kills of server, daemon and sandbox while an intern boots, runs, is suspended and is deleted.

After each: within 30 seconds the state is true, nothing runs that should not, nothing is left of
what was killed, and what was written to the workspace is there.
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.intern_rooms import Rooms, kill, sandboxed, until_nothing_runs
from tests.acceptance.server_process import ServerProcess, start_server

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.sandbox
SECONDS = 30.0
VICTIMS = ("server", "server", "daemon", "first", "all")


class Trial:
    """One intern, and a server that comes and goes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.server: ServerProcess = start_server(folder)
        self.key = self.server.api_key
        self.intern = self.rooms.make()
        self.notes: list[str] = []
        self.seen: set[tuple[str, str]] = set()
        """What was under way, and what was killed then."""

    @property
    def rooms(self) -> Rooms:
        return Rooms(self.server, self.key)

    def ours(self) -> Mapping[int, str]:
        return sandboxed(self.server.data_dir)

    def disturb(self) -> None:
        """Ask for what comes next, and kill something meanwhile."""
        found = self.rooms.get(self.intern)
        assert found is not None
        self._ask("suspend" if found["status"] == "running" else "provision")
        self._kill_something()
        self._check(self._settled())

    def _ask(self, operation: str) -> None:
        # It goes on, whether anybody waits for the answer or not.
        with suppress(httpx2.TimeoutException):
            headers = {"Authorization": f"Bearer {self.key}"}
            url = f"{self.server.base_url}/interns/{self.intern}/{operation}"
            reply = httpx2.post(url, headers=headers, timeout=self.random.uniform(0.05, 0.5))
            assert reply.status_code in {200, 202}, reply.text

    def _kill_something(self) -> None:
        time.sleep(self.random.uniform(0, 1.5))
        found = self.rooms.get(self.intern)
        victim = self.random.choice(VICTIMS)
        self.seen.add((str(found and found["status"]), victim))
        if victim == "server":
            self._restart()
            return
        for pid, name in self.ours().items():
            if victim == "all" or (victim == "daemon") == ("interns.daemon" in name):
                kill(pid)

    def _restart(self) -> None:
        self.server.kill()
        until_nothing_runs(self.server.data_dir, SECONDS)
        self.server = start_server(self.folder)

    def _settled(self) -> dict[str, Any]:
        """Wait until the intern is where it stays: two looks apart say the same."""
        ends = time.monotonic() + SECONDS
        while True:
            found = self.rooms.until(self.intern)
            assert found is not None
            time.sleep(0.3)
            if self.rooms.get(self.intern) == found and self._is_true(found):
                return found
            assert time.monotonic() < ends, (found, self.ours(), self.server.stderr_text()[-2_000:])

    def _is_true(self, found: dict[str, Any]) -> bool:
        if found["status"] != "running":
            return not self.ours()
        told = self.rooms.ask("GET", f"/interns/{self.intern}/daemon")
        if told.status_code != 200:
            return False
        headers = {"Authorization": f"Bearer {told.json()['token']}"}
        with suppress(httpx2.RequestError):
            return httpx2.get(f"{told.json()['origin']}/healthz", headers=headers).is_success
        return False

    def _check(self, found: dict[str, Any]) -> None:
        assert (found["last_failure_message"] is None) is (found["status"] != "failed")
        assert found["progress"] is None
        if found["status"] == "running":
            # A kill that comes late may hit it now; then it is asked again.
            done = self.rooms.script("ada", "cat notes 2> /dev/null; true")
            if done.returncode == 0:
                assert done.stdout.decode().split() == self.notes
                note = str(len(self.notes))
                if self.rooms.script("ada", f"echo {note} >> notes; sync").returncode == 0:
                    self.notes.append(note)

    def end(self) -> None:
        """Delete it, with a kill in the middle, and look for what is left."""
        self._settled()
        self.rooms.ask("DELETE", f"/interns/{self.intern}")
        time.sleep(self.random.uniform(0, 0.5))
        self._restart()
        assert self.rooms.until(self.intern, {None, "destroy_failed"}) is None
        until_nothing_runs(self.server.data_dir, SECONDS)
        time.sleep(0.5)
        data = self.server.data_dir
        left = [*(data / "interns" / "files").glob("*"), *(data / "interns" / "run").glob("*")]
        left += [*(data / "egress").glob("*"), *(data / "interns" / "logs").glob("*")]
        assert left == []
        archived = [path for path in (data / "blobs" / "interns").rglob("*") if path.is_file()]
        assert archived
        self.server.stop()
        groups = list(Path("/sys/fs/cgroup").glob(f"*/*{self.intern[:8]}*"))
        assert groups == []


def disturbed(folder: Path, seed: int, times: int) -> Trial:
    trial = Trial(folder, seed)
    try:
        for _ in range(times):
            trial.disturb()
        trial.end()
    finally:
        if trial.server.process.poll() is None:
            trial.server.process.send_signal(signal.SIGKILL)
    return trial


def test_an_intern_outlives_ten_kills(tmp_path_factory: pytest.TempPathFactory) -> None:
    trial = disturbed(tmp_path_factory.mktemp("k"), 11, 10)
    assert trial.seen


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_an_intern_outlives_fifty_kills(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    trial = disturbed(tmp_path_factory.mktemp("k"), seed, 25)
    assert {victim for _, victim in trial.seen} == set(VICTIMS)
    assert {status for status, _ in trial.seen} >= {"running", "stopped"}


@pytest.mark.soak
def test_an_intern_is_suspended_and_resumed_a_hundred_times(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with start_server(tmp_path_factory.mktemp("s")) as server:
        rooms = Rooms(server)
        intern = rooms.run()
        rooms.output("ada", "head -c 1000000 /dev/urandom > data; mkdir -p a/b; ln -s a/b link")
        digest = rooms.output("ada", "sha256sum data")
        for _ in range(100):
            rooms.suspend(intern)
            assert rooms.run() == intern  # it compares its files with those that were suspended
        assert rooms.output("ada", "sha256sum data") == digest
