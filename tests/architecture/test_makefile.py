"""What `make` prints during a first setup."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_step_of_a_first_setup_is_announced() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "setup"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    told = 0
    for line in done.stdout.splitlines():
        if step := re.match(r'echo "(\d)/4  ', line):
            told += 1
            assert int(step[1]) == told
        elif re.match(r"(\S*uv (pip|venv)|\S*python -m (pip|venv))\b", line.replace('"', "")):
            assert told, line
    assert told == 4
