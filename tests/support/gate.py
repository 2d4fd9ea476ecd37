"""Runs all tests by the rules of the gate: tests that failed are repeated once, alone.

    python -m tests.support.gate [--verdicts FILE] [ARGUMENT OF PYTEST ...]

    the tests ──> what failed, alone ──> the verdicts on what the run has left behind ──> exit code
    (arguments)   (one process)          (one process)

The exit code is 0 or 1, and the reason stands in the last lines. A test that failed and then passed
is flaky: the run passes and names it, unless there are too many.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.reply_validation import REPLIES

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_REPEATED: Final = 5
"""More failed tests than this are no accident."""
MOST_FLAKY: Final = 2
RUN: Final = "TOLLHOUSE_TEST_RUN"
"""The variable with the folder of what a run has left behind, for the verdicts."""
FILES: Final = "files"
"""The folder in it that has the temporary folders of all tests."""
_TESTS_FAILED: Final = 1
"""Pytest's exit code for a run that went to its end and has failed tests."""


@dataclass
class Stage:
    """What one run of pytest came to."""

    exit_code: int
    passed: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    exact: set[str] = field(default_factory=set)
    """Those of the failed tests that have to pass every time."""
    breakdowns: list[str] = field(default_factory=list)
    """What went wrong apart from tests that failed."""

    @property
    def is_green(self) -> bool:
        return self.exit_code == 0 and not self.failed and not self.breakdowns

    def why_final(self) -> str | None:
        """Return why a failed run is not to be repeated; None if it is."""
        if self.breakdowns:
            return "; ".join(self.breakdowns)
        if self.exit_code != _TESTS_FAILED or not self.failed:
            return f"pytest ended with exit code {self.exit_code}, {len(self.failed)} tests failed"
        if self.exact:
            return _listed("exact tests failed, which have to pass every time:", self.exact)
        if len(self.failed) > MOST_REPEATED:
            return f"{len(self.failed)} tests failed; at most {MOST_REPEATED} are repeated"
        return None


class Gate:
    """The stages of one run.

    Args:
        folder: Keeps what the run leaves behind.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = folder / FILES
        self._files.mkdir()
        replies = folder / "replies"
        replies.mkdir()
        self._env = {**os.environ, REPLIES: str(replies), RUN: str(folder)}

    def run(self, arguments: Sequence[str], verdicts: str | None) -> int:
        """Run all stages and print how they ended. Return the exit code."""
        first = self._stage("tests", arguments)
        if not first.is_green:
            if why := first.why_final():
                return _red(f"not repeated: {why}")
            _say(f"\n==> repeated alone: {len(first.failed)} failed tests")
            second = self._stage("again", sorted(first.failed))
            if not second.is_green or not first.failed <= second.passed:
                left = second.failed or first.failed - second.passed
                return _red(_listed("failed again:", left))
        if verdicts is not None:
            _say("\n==> verdicts on what the tests have left behind")
            if not self._stage("verdicts", ["-q", verdicts]).is_green:
                return _red("see the verdicts above")
        if len(first.failed) > MOST_FLAKY:
            return _red(_listed(f"more than {MOST_FLAKY} flaky tests:", first.failed))
        if first.failed:
            _print_box(_listed("FLAKY: failed, then passed alone. Mend or delete:", first.failed))
        return 0

    def _stage(self, name: str, arguments: Sequence[str]) -> Stage:
        # Its own module, not ours under another name: it is imported by what it runs.
        report = self._folder / f"{name}.jsonl"
        program = [sys.executable, "-m", "tests.support.gate_stage", str(report)]
        files = f"--basetemp={self._files / name}"
        done = subprocess.run([*program, files, *arguments], env=self._env, check=False)
        stage = Stage(done.returncode)
        lines = report.read_text().splitlines() if report.exists() else ()
        for kind, what in map(json.loads, lines):
            if kind == "breakdown":
                stage.breakdowns.append(what)
            else:
                getattr(stage, kind).add(what)
        stage.passed -= stage.failed
        return stage


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()  # what pytest prints comes after it


def _listed(title: str, tests: set[str]) -> str:
    return "\n  ".join([title, *sorted(tests)])


def _red(reason: str) -> int:
    _print_box(f"FAILED, {reason}")
    return 1


def _print_box(text: str) -> None:
    lines = text.splitlines()
    border = "+" + "-" * (max(map(len, lines)) + 2) + "+"
    _say("", border, *(f"| {each:<{len(border) - 4}} |" for each in lines), border)


def _wait_for_pytest(_number: int, _frame: object) -> None:
    """Do nothing at an interrupt: it reaches pytest too, which then lists what failed so far.

    No `SIG_IGN`: pytest would inherit that.
    """


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.gate")
    parser.add_argument("--verdicts", help="tests of what the run has left behind, run at its end")
    options, arguments = parser.parse_known_args()
    signal.signal(signal.SIGINT, _wait_for_pytest)
    folder = Path(tempfile.mkdtemp(prefix="gate-"))
    code = Gate(folder).run(arguments, options.verdicts)
    if code == 0:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _say(f"the files of the tests are in {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
