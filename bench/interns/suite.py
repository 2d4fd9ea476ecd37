"""The measurements of interns, in their order.

Some servers with a few interns each, for boots; one whose intern is suspended and resumed; one
whose interns do nothing.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.gateway import Gateway, write_config
from bench.interns import first_run
from bench.interns.baseline import (
    StandaloneDaemon,
    bubblewrap_version,
    flush_and_read,
    sandbox_seconds,
)
from bench.interns.chat import measure, replaced_daemon
from bench.interns.client import InternClient
from bench.interns.figures import (
    BESIDE,
    FIRST,
    LATER,
    RESUMED,
    WITH_FILES,
    Alone,
    InternFigures,
)
from bench.interns.watch import Watch
from bench.processes import BenchError
from bench.suite import report_progress
from tollhouse.interns.runtimes.host import look_around
from tollhouse.interns.runtimes.problems import find_problem

if TYPE_CHECKING:
    from pathlib import Path

    from bench.interns.figures import Boot, InternDose

_FOLDERS: Final = 10
"""What an intern's files are spread over."""


def problem(folder: Path) -> str | None:
    """Return why interns cannot be measured on this machine; None where they can.

    Args:
        folder: Where data folders are made.
    """
    return find_problem(look_around(folder), as_root=os.geteuid() == 0)


class InternSuite:
    """One run of all measurements of interns."""

    def __init__(self, folder: Path, dose: InternDose) -> None:
        """Plan a run.

        Args:
            folder: An empty folder for data and configurations.
            dose: How much.
        """
        self._folder = folder
        self._data = folder / "data"
        self._dose = dose
        self._figures = InternFigures(load_average=os.getloadavg()[0])
        self._config = write_config(folder / "interns.yaml", None)

    def run(self) -> InternFigures:
        """Measure everything.

        Raises:
            BenchError: Something did not start, or answered wrongly.
        """
        self._figures.bubblewrap = bubblewrap_version()
        for number in range(1, self._dose.servers + 1):
            self._boots(f"{number}/{self._dose.servers}")
        self._suspensions()
        self._idle()
        self._chats()
        self._first_runs()
        return self._figures

    def _boots(self, number: str) -> None:
        with self._server() as server, closing(InternClient(server)) as client:
            self._alone(FIRST)
            self._note(FIRST, client.make("intern-0")[1], f"server {number}")
            for later in range(1, self._dose.later + 1):
                self._alone(LATER)
                self._note(LATER, client.make(f"intern-{later}")[1], f"server {number}")

    def _alone(self, kind: str) -> None:
        made = sandbox_seconds()
        with StandaloneDaemon(self._folder) as daemon:
            found = Alone(made, daemon.seconds)
        self._figures.alone.setdefault(kind, []).append(found)

    def _suspensions(self) -> None:
        dose = self._dose
        with self._server() as server, closing(InternClient(server)) as client:
            intern, _ = client.make("ada")
            for number in range(1, dose.suspends + 1):
                self._suspend(client, intern, RESUMED, f"{number}/{dose.suspends}")
            for number in range(1, dose.suspends_with_files + 1):
                found = flush_and_read(self._folder / "files", dose.files, dose.file_bytes)
                self._figures.files.append(found)
                self._fill(client, "ada")
                self._suspend(client, intern, WITH_FILES, f"{number}/{dose.suspends_with_files}")

    def _suspend(self, client: InternClient, intern: str, kind: str, number: str) -> None:
        suspension = client.suspend(intern)
        self._figures.suspensions.setdefault(kind, []).append(suspension)
        report_progress(f"round {number}, {kind}: suspended in {suspension.seconds:.2f} s")
        self._alone(kind)
        self._note(kind, client.resume(intern), f"round {number}")

    def _fill(self, client: InternClient, name: str) -> None:
        """Have an intern write its files anew, as a program of its own would."""
        dose = self._dose
        script = (
            f"mkdir -p $(seq -f d%g 0 {_FOLDERS - 1})\n"
            f"for n in $(seq {dose.files}); do\n"
            f"  head -c {dose.file_bytes} /dev/urandom > d$((n % {_FOLDERS}))/f$n\n"
            "done\n"
            f"find d? -type f -size {dose.file_bytes}c | wc -l\n"
        )
        written = client.run(name, script).split()
        if written[-1:] != [str(dose.files)]:
            raise BenchError(f"an intern wrote {written} files in place of {dose.files}")

    def _idle(self) -> None:
        dose, figures = self._dose, self._figures
        with self._server() as server, closing(InternClient(server)) as client:
            with StandaloneDaemon(self._folder) as daemon:
                sleep(dose.settle_seconds)
                figures.daemon_alone = cpu.pss_alone(daemon.pid)
            watch = Watch(server.pid)
            figures.memory.append(watch.memory(0))
            figures.idling.append(watch.idling(0, dose.idle_seconds))
            deadline, running = monotonic() + dose.grow_seconds, 0
            for wanted in dose.running:
                while running < wanted and (running == 0 or monotonic() < deadline):
                    found = client.make(f"intern-{running}")[1]
                    running += 1
                    if running > 1:
                        self._note(BESIDE, found, f"{running} of {dose.running[-1]}")
                if running > figures.memory[-1].running:
                    sleep(dose.settle_seconds)
                    figures.memory.append(watch.memory(running))
                    report_progress(
                        f"{running} idle: {figures.memory[-1].sandbox / 1e6:.1f} MB each"
                    )
            figures.idling.append(watch.idling(running, dose.idle_seconds))

    def _chats(self) -> None:
        dose = self._dose
        with self._server() as server, closing(InternClient(server)) as client:
            intern, _ = client.make("ada")
            with replaced_daemon(self._data, intern) as (talker, path):
                for number in range(1, dose.chats + 1):
                    found = measure(server, intern, talker, path, dose)
                    self._figures.chats.append(found)
                    cost = found.through.server_seconds * 1e6
                    report_progress(
                        f"round {number}/{dose.chats}, chat: {cost:.0f} us of CPU for a piece"
                    )

    def _first_runs(self) -> None:
        dose, figures = self._dose, self._figures
        with self._server() as server, closing(InternClient(server)) as client:
            intern, _ = client.make("ada")
            watch = Watch(server.pid)
            for number in range(1, dose.first_runs + 1):
                if number > 1:
                    client.suspend(intern)
                    client.resume(intern)
                found = first_run.measure(server, intern, watch, dose)
                figures.first_runs.append(found)
                report_progress(
                    f"round {number}/{dose.first_runs}, agent: {found.first_seconds:.2f} s"
                )
            if dose.agent_seconds:
                report_progress("waiting for the end of an agent that does nothing")
                figures.agent_ended = first_run.ended(watch, dose.agent_seconds)

    def _server(self) -> Gateway:
        """Start a server in a new data folder."""
        shutil.rmtree(self._data, ignore_errors=True)
        return Gateway(self._data, self._config)

    def _note(self, kind: str, boot: Boot, number: str) -> None:
        self._figures.boots.setdefault(kind, []).append(boot)
        report_progress(f"{number}, {kind}: runs after {boot.seconds:.2f} s")
