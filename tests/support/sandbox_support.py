"""Tells whether this machine can make sandboxes, which tests marked `sandbox` need."""

import os
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock

_REQUIRED: Final = bool(os.environ.get("TOLLHOUSE_REQUIRE_SANDBOX"))
"""Read before any test runs, which then know nothing of the shell's variables."""


@cache
def sandbox_problem() -> str | None:
    return BubblewrapRuntime(Path(tempfile.gettempdir(), "nothing"), SystemClock()).problem()


def sandboxes_required() -> bool:
    return _REQUIRED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a sandbox test that skips itself where sandboxes are required."""
    report = yield
    if report.skipped and sandboxes_required() and item.get_closest_marker("sandbox"):
        report.outcome = "failed"
        report.longrepr = f"it has to run here, and skipped itself: {report.longrepr}"
    return report
