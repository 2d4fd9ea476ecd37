"""Tells whether this machine can make sandboxes, which tests marked `sandbox` need."""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock

_REQUIRED: Final = bool(os.environ.get("TOLLHOUSE_REQUIRE_SANDBOX"))
"""Read before any test runs, which then know nothing of the shell's variables."""


@cache
def sandbox_problem() -> str | None:
    return BubblewrapRuntime(Path(tempfile.gettempdir(), "nothing"), SystemClock()).problem()


def sandboxes_required() -> bool:
    return _REQUIRED
