"""Whether sandboxes can be made here, which tests marked `sandbox` need."""

import os
import tempfile
from functools import cache
from pathlib import Path

from tollhouse.interns.runtimes.bubblewrap import BubblewrapRuntime
from tollhouse.kernel.clock import SystemClock


@cache
def sandbox_problem() -> str | None:
    return BubblewrapRuntime(Path(tempfile.gettempdir(), "nothing"), SystemClock()).problem()


def sandboxes_required() -> bool:
    return bool(os.environ.get("TOLLHOUSE_REQUIRE_SANDBOX"))
