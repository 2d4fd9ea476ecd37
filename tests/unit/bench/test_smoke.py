"""The whole benchmark, with a dose that proves nothing but that it works."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_quick_run_measures_everything_and_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(output)]
    command += ["--work-dir", str(tmp_path / "work")]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "50-chunk stream, gateway" in done.stdout
    figures = json.loads(output.read_text())["figures"]
    assert figures["sent"] == figures["booked"] > 0
    for case in ("whole", "stream"):
        assert all(each["microseconds"] > 0 for each in figures["rounds"][case]["gateway"])
    assert list((tmp_path / "work").iterdir()) == []
