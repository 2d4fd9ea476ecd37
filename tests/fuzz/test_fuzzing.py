"""Fuzzes each target for ten seconds; longer with `DOSE=full`."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CHECKOUT = Path(__file__).parents[2]
SECONDS = 10
TO_BEGIN_AND_TO_END = 120
FOUND = re.compile(r"Test unit written to (\S+)")


@pytest.mark.soak
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_is_found_on_which_it_fails(target: str, soak_factor: int) -> None:
    seconds = SECONDS * soak_factor
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", target, "--seconds", str(seconds)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds + TO_BEGIN_AND_TO_END,
        check=False,
    )
    said = done.stdout + done.stderr
    inputs = [(CHECKOUT / path).read_bytes().hex() for path in FOUND.findall(said)]
    assert done.returncode == 0, f"fails on {', '.join(inputs)}\n{said[-6_000:]}"
