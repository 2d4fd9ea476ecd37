"""A client of interns in real sandboxes, and the processes of those on this machine."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Generator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2

from tests.support.forked import forking_program
from tests.support.server_process import ServerProcess, clean_environment
from tests.support.waiting import WAIT_SECONDS
from tollhouse.interns.runtimes.filesize import descendants

SETTLED = frozenset({"running", "failed", "stopped", "destroy_failed"})
ASK_GATEWAY = "curl -sS -m 20 -o /dev/null -w '%{http_code}' http://gateway.internal/v1/models"
"""Prints the status with which a sandbox reaches the gateway through its proxy."""


class InternClient:
    """A client of the interns in a server's first workspace."""

    def __init__(self, server: ServerProcess, key: str | None = None) -> None:
        self.server = server
        self.key = key or server.api_key

    @property
    def environment(self) -> dict[str, str]:
        """The environment with the server's address and the key, for commands."""
        return {"TOLLHOUSE_BASE_URL": self.server.base_url, "TOLLHOUSE_API_KEY": self.key}

    def request(self, method: str, path: str, body: Any = None) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.server.base_url}{path}"
        return httpx2.request(method, url, headers=headers, json=body, timeout=30)

    def create(self, name: str = "ada", **body: Any) -> str:
        reply = self.request("POST", "/interns", {"name": name, **body})
        assert reply.status_code in {200, 201}, reply.text
        return reply.json()["id"]

    def get(self, intern: str) -> dict[str, Any] | None:
        """Return an intern; None after it was deleted."""
        reply = self.request("GET", f"/interns/{intern}")
        if reply.status_code == 404:
            return None
        assert reply.status_code == 200, reply.text
        return reply.json()

    def until(
        self, intern: str, statuses: Collection[str | None] = SETTLED
    ) -> dict[str, Any] | None:
        """Wait until an intern has one of some statuses; None means deleted."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            found = self.get(intern)
            if (None if found is None else found["status"]) in statuses:
                return found
            assert time.monotonic() < ends, (found, self.server.stderr_text()[-3_000:])
            time.sleep(0.05)

    def until_logged(self, intern: str, pattern: str) -> str:
        """Wait until an intern's log matches a pattern; return the log."""
        ends = time.monotonic() + WAIT_SECONDS
        while True:
            lines = self.request("GET", f"/interns/{intern}/logs").json()["data"]
            log = "\n".join(line["text"] for line in lines)
            if re.search(pattern, log, re.DOTALL):
                return log
            assert time.monotonic() < ends, (log, self.server.stderr_text()[-3_000:])
            time.sleep(0.05)

    def run(self, name: str = "ada", **body: Any) -> str:
        """Create an intern or provision an existing one, and wait until it runs."""
        intern = self.create(name, **body)
        found = self.get(intern)
        assert found is not None
        if found["status"] != "running":
            reply = self.request("POST", f"/interns/{intern}/provision")
            assert reply.status_code == 202, reply.text
        found = self.until(intern)
        assert found is not None
        assert found["status"] == "running", (found, self.server.stderr_text()[-3_000:])
        return intern

    def suspend(self, intern: str) -> None:
        reply = self.request("POST", f"/interns/{intern}/suspend")
        assert reply.status_code in {200, 408}, reply.text
        found = self.until(intern, {"stopped", "failed"})
        assert found is not None
        assert found["status"] == "stopped", found

    def delete_all(self) -> None:
        """Delete every intern, as soon as its state allows it."""
        for intern in self.request("GET", "/interns").json()["data"]:
            ends = time.monotonic() + WAIT_SECONDS
            path = f"/interns/{intern['id']}"
            while (
                self.request("DELETE", path, {"acknowledge_workspace_loss": True}).status_code
                == 409
            ):
                assert time.monotonic() < ends, self.get(intern["id"])
                time.sleep(0.05)
            self.until(intern["id"], {None})

    def put_file(self, intern: str, path: str, content: bytes) -> int:
        """Have an intern's daemon write a file; return the status of its answer."""
        return self.daemon(intern, "PUT", f"/files/{path}", content).status_code

    def healthy(self, intern: str) -> bool:
        """Tell whether an intern's daemon answers with the revealed token."""
        return self.daemon(intern, "GET", "/healthz").is_success

    def daemon(
        self, intern: str, method: str, path: str, content: bytes | None = None
    ) -> httpx2.Response:
        """Send a request to an intern's daemon."""
        access = self.request("GET", f"/interns/{intern}/daemon")
        assert access.status_code == 200, access.text
        headers = {"Authorization": f"Bearer {access.json()['token']}"}
        url = f"{access.json()['origin']}{path}"
        return httpx2.request(method, url, headers=headers, content=content, timeout=30)

    def run_script(self, name: str, text: str) -> subprocess.CompletedProcess[bytes]:
        """Run a script in a shell of an intern."""
        return subprocess.run(
            [str(forking_program()), "intern", "attach", name],
            env=clean_environment(self.environment),
            input=text.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )

    def script_output(self, name: str, text: str) -> str:
        done = self.run_script(name, text)
        log = self.server.stderr_text()[-3_000:]
        assert done.returncode == 0, (done.stdout, done.stderr, log)
        return done.stdout.decode()


def sandbox_processes(data_dir: Path, intern: str = "") -> dict[int, str]:
    """Return the processes on this machine that run in sandboxes of a server, and their command.

    With an intern only those of its sandbox.
    """
    digest = sha256(os.fsencode(data_dir.resolve())).hexdigest()
    mark = f"tollhouse-{digest[:10]}-{intern}".encode()
    commands: dict[int, bytes] = {}
    places: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                commands[int(folder.name)] = (folder / "cmdline").read_bytes()
                places[int(folder.name)] = str((folder / "ns" / "pid").readlink())
    ours = str(Path("/proc/self/ns/pid").readlink())
    inside = {places.get(pid) for pid, command in commands.items() if mark in command} - {ours}
    return {
        pid: command.decode(errors="replace").replace("\0", " ")
        for pid, command in commands.items()
        if mark in command or places.get(pid) in inside
    }


def daemons(data_dir: Path) -> list[int]:
    """Return the daemons that run in sandboxes of a server."""
    return _programs(data_dir, "tollhouse.sandbox.daemon")


def agents(data_dir: Path) -> list[int]:
    """Return the agents that run in sandboxes of a server."""
    return _programs(data_dir, "tollhouse.sandbox.agent")


def _programs(data_dir: Path, module: str) -> list[int]:
    commands = sandbox_processes(data_dir).items()
    return [pid for pid, each in commands if module in each and not is_bubblewrap(each)]


def process_tree(server: ServerProcess) -> dict[int, str]:
    """Return a server's process and its descendants, with their commands."""
    return {pid: _command(pid) for pid in descendants(server.process.pid)}


def still_running(pids: Collection[int]) -> set[int]:
    """Return the processes that still run, without zombies."""
    return {pid for pid in pids if _command(pid)}


def _command(pid: int) -> str:
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    return ""


def is_bubblewrap(command: str) -> bool:
    """Tell whether a command line is bubblewrap's; it contains the daemon's too."""
    return Path(command.split(" ", 1)[0]).name == "bwrap"


def until_nothing_runs(data_dir: Path, intern: str = "", seconds: float = 30.0) -> None:
    """Wait until no process runs in a sandbox of a server, or in that of an intern."""
    ends = time.monotonic() + seconds
    while left := sandbox_processes(data_dir, intern):
        assert time.monotonic() < ends, left
        time.sleep(0.05)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def memory_of(pid: int) -> Generator[bytes]:
    """Yield the readable memory of a process."""
    with suppress(OSError):
        maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
        with Path(f"/proc/{pid}/mem").open("rb") as memory:
            for line in maps:
                place, rights, *_ = line.split()
                if rights.startswith("rw"):
                    begin, end = (int(each, 16) for each in place.split("-"))
                    with suppress(OSError):
                        memory.seek(begin)
                        yield memory.read(end - begin)
