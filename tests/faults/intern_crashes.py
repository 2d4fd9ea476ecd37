"""Kills processes of a server with one intern at named points, and checks the promises after."""

import os
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import httpx2

from tests.support.child_processes import is_running
from tests.support.failpoints import Failpoints
from tests.support.forked import run_forked
from tests.support.intern_client import (
    ASK_GATEWAY,
    InternClient,
    daemons,
    is_bubblewrap,
    kill,
    process_tree,
    sandbox_processes,
)
from tests.support.server_process import ServerProcess, clean_environment, start_server

_T = TypeVar("_T")
SECONDS = 60.0
"""Seconds: twice the promised time, longer than anything here takes on a busy machine."""
BOOT = (
    "intern.prepare.before",
    "intern.egress.before",
    "intern.egress.after",
    "intern.sandbox.made",
    "intern.sandbox.after",
    "intern.port.after",
)
POINTS: dict[str, Collection[str]] = {
    "provision": BOOT,
    "resume": BOOT,
    "suspend": ("intern.suspend.before", "intern.flush.before", "intern.flush.after"),
    "delete": (
        "intern.destroy.before",
        "intern.archive.after",
        "intern.remove.before",
        "intern.remove.after",
    ),
}
"""The places in each operation, in their order."""
_WITH_OUTER = {"intern.sandbox.made", "intern.sandbox.after", "intern.port.after"}
_WITH_DAEMON = {"intern.sandbox.after", "intern.port.after"}
_BEFORE_ITS_END = {"intern.suspend.before", "intern.destroy.before"}
VICTIMS: dict[str, Collection[str] | None] = {
    "server": None,
    "egress": None,
    "bubblewrap": _WITH_OUTER | _BEFORE_ITS_END,
    "init": _WITH_OUTER | _BEFORE_ITS_END,
    "daemon": _WITH_DAEMON | _BEFORE_ITS_END,
}
"""The processes to kill, and the points at which each runs; None means all."""


@dataclass(frozen=True)
class Crash:
    """One kill: the operation, the point in it, and the process."""

    operation: str
    point: str
    victim: str

    def __str__(self) -> str:
        return f"{self.operation}, {self.point}: {self.victim}"


def crashes_of(operation: str) -> list[Crash]:
    """Return every kill of an operation that there is."""
    return [
        Crash(operation, point, victim)
        for point in POINTS[operation]
        for victim, where in VICTIMS.items()
        if where is None or point in where
    ]


class InternCrashes:
    """Runs kills one after the other, and brings the intern into the state that each needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stops = Failpoints(folder / "stops")
        self._mounts = _mounts()
        self.server = self._start()
        self.key = self.server.api_key
        self.intern = ""
        self.notes: list[str] = []

    @property
    def interns(self) -> InternClient:
        return InternClient(self.server, self.key)

    def go(self, cell: Crash) -> None:
        """Carry out a kill, then check all promises."""
        if cell.victim == "egress":
            self._have_egress()
        self._make_ready(cell.operation)
        self._stops.stop_at(cell.point)
        asking = Thread(target=self._ask, args=(cell.operation,))
        asking.start()
        self._wait(self._stops.reached, f"{cell} was not reached")
        self._kill(cell.victim)
        asking.join()
        self._settle(cell)
        if self.status == "running":
            self._work()

    def end(self) -> None:
        """Delete the intern, and stop the server."""
        if self.status is not None:
            self.interns.request("DELETE", f"/interns/{self.intern}")
            self.interns.until(self.intern, {None})
        self._wait(self._nothing_is_left, "something is left")
        self.server.stop()

    @property
    def status(self) -> str | None:
        """The intern's status; None after it was deleted."""
        found = self.interns.get(self.intern) if self.intern else None
        return None if found is None else found["status"]

    def _start(self) -> ServerProcess:
        return start_server(self.folder, env=self._stops.env)

    # Before a kill

    def _make_ready(self, operation: str) -> None:
        """Bring the intern into the state in which an operation begins."""
        if operation == "provision":
            if self.status is not None:
                self.interns.request("DELETE", f"/interns/{self.intern}")
                self.interns.until(self.intern, {None})
            self.intern, self.notes = self.interns.create(), []
            return
        if self.status != "running":
            self.notes = [] if self.status is None else self.notes
            self.intern = self.interns.run()
            self._work()
        if operation == "resume":
            self.interns.suspend(self.intern)

    def _have_egress(self) -> None:
        """Start the egress proxy, which begins with a server's first session."""
        if not any(_egress(name) for name in process_tree(self.server).values()):
            first = self.interns.run("first")
            self.interns.request("DELETE", f"/interns/{first}")
            self.interns.until(first, {None})

    def _work(self) -> None:
        """Have the intern read what it wrote, write more, and call the gateway."""
        note = f"note-{len(self.notes)}"
        script = f"cat notes 2> /dev/null; {ASK_GATEWAY}; echo; echo {note} >> notes; sync"
        told = self.interns.script_output("ada", script).split()
        assert told == [*self.notes, "200"], (told, self.notes)
        self.notes.append(note)

    def _ask(self, operation: str) -> None:
        # It goes on, whether anybody waits for the answer or not.
        method, end = ("DELETE", "") if operation == "delete" else ("POST", f"/{operation}")
        path = f"/interns/{self.intern}{end.replace('resume', 'provision')}"
        with suppress(httpx2.RequestError):
            reply = self.interns.request(method, path)
            assert reply.status_code in {200, 202, 408, 409}, reply.text

    # The kill

    def _kill(self, victim: str) -> None:
        if victim == "server":
            self.server.kill()
            self._stops.go_on()
            self.server = self._start()
            return
        killed = self._wait(lambda: self._find(victim), f"no {victim} to kill")
        for pid in killed:
            kill(pid)
        self._stops.go_on()
        # On a busy machine one that is to die still answers for a while, and looks well.
        self._wait(lambda: not any(map(is_running, killed)), f"{victim} does not die")

    def _find(self, victim: str) -> list[int]:
        """Return the processes to kill; it may take a moment until they are there."""
        match victim:
            case "egress":
                return [pid for pid, name in process_tree(self.server).items() if _egress(name)]
            case "daemon":
                return daemons(self.server.data_dir)
            case _:
                both = [pid for pid, name in self.ours().items() if is_bubblewrap(name)]
                outer = [pid for pid in both if _parent(pid) == self.server.process.pid]
                return outer if victim == "bubblewrap" else [*set(both) - set(outer)]

    def ours(self) -> dict[int, str]:
        return sandbox_processes(self.server.data_dir)

    # After it

    def _settle(self, cell: Crash) -> None:
        self._wait(self._is_true, f"{cell}: what is shown is not so")
        found = self.interns.get(self.intern)
        if cell.operation == "delete":
            assert found is None, (str(cell), found)
            self._check_archive()
            return
        assert found is not None, str(cell)
        assert found["progress"] is None
        assert (found["last_failure_message"] is None) is (found["status"] != "failed"), found
        wanted = {"suspend": {"stopped"}}.get(cell.operation, {"running"})
        if cell.victim not in {"server", "egress"}:
            wanted = {*wanted, "failed"}  # of a boot, where what boots is killed
        assert found["status"] in wanted, (str(cell), found)

    def _is_true(self) -> bool:
        """Tell whether the intern has settled, and runs if and only if that is shown."""
        found = self.interns.get(self.intern)
        if found is None or found["status"] != "running":
            settled = found is None or found["status"] in {"stopped", "failed"}
            return settled and self._nothing_is_left()
        return self._daemon_answers() and self._one_is_there()

    def _daemon_answers(self) -> bool:
        with suppress(httpx2.RequestError, AssertionError):  # gone, or not there yet
            return self.interns.healthy(self.intern)
        return False

    def _one_is_there(self) -> bool:
        outer = [name for name in process_tree(self.server).values() if is_bubblewrap(name)]
        egress = [name for name in process_tree(self.server).values() if _egress(name)]
        sockets, egress_folders = self._left()
        groups = {group.name for group in self._groups()}
        return (
            (len(outer), len(egress), len(sockets), len(egress_folders)) == (2, 1, 1, 1)
            and len(groups) <= 1
            and _mounts() == self._mounts
        )

    def _nothing_is_left(self) -> bool:
        data = self.server.data_dir
        left = [*self.ours(), *(path for paths in self._left() for path in paths)]
        if self.status is None:
            left += [*data.glob("interns/files/*"), *data.glob("interns/logs/*")]
        return not left and not self._groups() and _mounts() == self._mounts

    def _left(self) -> tuple[list[Path], list[Path]]:
        """Return the sockets of daemons and the folders of egress sessions."""
        data = self.server.data_dir
        return [*data.glob("interns/run/*")], [*data.glob("egress/*")]

    def _groups(self) -> list[Path]:
        """Return the control groups of the intern's sandbox; others come and go meanwhile."""
        found = (Path(top) for top, _, _ in os.walk("/sys/fs/cgroup"))
        return [each for each in found if self.intern and each.name.endswith(self.intern)]

    def _check_archive(self) -> None:
        """Unpack a deleted intern's archive, and read its notes."""
        into = self.folder / f"unpacked-{self.intern}"
        words = ("intern", "archives", "unpack", self.intern, into)
        data_dir = ("--data-dir", self.server.data_dir)
        done = run_forked(*words, *data_dir, env=clean_environment())
        assert done.returncode == 0, done.stderr
        assert (into / "notes").read_text().split() == self.notes

    def _wait(self, condition: Callable[[], _T], failure: str) -> _T:
        """Wait until a condition holds; return what it has found."""
        ends = time.monotonic() + SECONDS
        while not (found := condition()):
            told: Any = (failure, self.status, self.ours(), self._left(), self._groups())
            assert time.monotonic() < ends, (told, self.server.stderr_text()[-3_000:])
            time.sleep(0.02)
        return found


def _egress(command: str) -> bool:
    return "tollhouse.apps.egress" in command


def _parent(pid: int) -> int:
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("PPid:")).split()[1])
    return 0


def _mounts() -> list[str]:
    """Return where this machine has mounts that a sandbox could have left."""
    places = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted(place for place in places if "tollhouse" in place or "pytest" in place)
