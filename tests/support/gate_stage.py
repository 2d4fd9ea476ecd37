"""Runs pytest for `gate`, and writes to a file what became of each test.

    python -m tests.support.gate_stage FILE [ARGUMENT OF PYTEST ...]

The file has a pair in JSON on each line: `passed`, `failed` or `exact` with a test's name, or
`breakdown` with what went wrong apart from the tests. A run in several processes is reported by the
one that deals out the tests, so that it tells of the others' crashes, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest


class Recorder:
    """A plugin that writes as things happen: a process that dies leaves what it knew."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def _write(self, kind: str, what: str) -> None:
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps([kind, what]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._write("failed", report.nodeid)
            if "exact" in report.keywords:
                self._write("exact", report.nodeid)
        elif report.passed and report.when == "call":
            self._write("passed", report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write("breakdown", f"{report.nodeid} cannot be collected")

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self._write("breakdown", f"an error in pytest: {excinfo.exconly()}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error is not None:
            self._write("breakdown", f"process {node.gateway.id} ended: {error}")


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[Recorder(Path(sys.argv[1]))]))
