"""curl, for tests of what users do with it."""

import os
import shutil
from typing import Final

import pytest

_REQUIRED: Final = bool(os.environ.get("TOLLHOUSE_REQUIRE_CURL"))
"""Read before any test runs, which then know nothing of the shell's variables."""


def find_curl() -> str:
    """Return curl's path; skip the test if there is none, or fail it if there must be."""
    found = shutil.which("curl")
    if found is None:
        missing = pytest.fail if _REQUIRED else pytest.skip
        missing("curl is not installed")
    return found
