"""What the gate makes of planted tests: which are repeated, which fail a run at once."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.exact import EXACT

ROOT = Path(__file__).parents[2]
VERDICTS = str(ROOT / "tests" / "verdicts.py")
SETTINGS = """
[pytest]
addopts = -p no:cacheprovider -p no:randomly --strict-markers
markers =
    exact: has to pass every time
    sandbox: starts real sandboxes
"""
HEAD = """
import os
from pathlib import Path

import pytest

def fails_the_first_time(name):
    ran = Path("ran-" + name)
    had_run = ran.exists()
    ran.touch()
    assert had_run
"""
GREEN = "def test_green(): pass\n"
RED = "def test_red(): assert False\n"
DOUBLE_SPEND = """
@pytest.mark.exact
def test_no_credit_is_spent_twice(): fails_the_first_time("spend")
"""
CRASH = "def test_crash(): os._exit(3)\n"
INTERRUPT = "def test_interrupt(): raise KeyboardInterrupt\n"
FAULTY_END = """
@pytest.fixture(scope="module", autouse=True)
def faulty_end():
    yield
    fails_the_first_time("end")
"""
REPEATED = "==> repeated alone"
IN_TWO_PROCESSES = ("-p", "xdist", "-n", "2")


def flaky(*names: str) -> str:
    return "".join(f"def test_{name}(): fails_the_first_time('{name}')\n" for name in names)


@pytest.fixture
def project() -> Iterator[Path]:
    """Return a folder for planted tests, which no verdict on this very run looks into."""
    with TemporaryDirectory() as name:
        (Path(name) / "pytest.ini").write_text(SETTINGS)
        yield Path(name)


def run_gate(project: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    """Return the exit code of a run in a folder, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.gate", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(project), **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run_planted(project: Path, tests: str, *arguments: str) -> tuple[int, str]:
    (project / "test_planted.py").write_text(HEAD + tests)
    return run_gate(project, *arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_a_run_without_failures_is_green_and_leaves_nothing(project: Path) -> None:
    code, printed = run_planted(project, GREEN)

    assert code == 0, printed
    assert "1 passed in" in printed.splitlines()[-1]
    assert not list(project.glob("gate-*"))


@pytest.mark.parametrize(
    ("tests", "arguments"),
    [(flaky("one", "two"), ()), (flaky("one"), IN_TWO_PROCESSES), (FAULTY_END + flaky("one"), ())],
)
def test_flaky_tests_are_green_and_named_in_the_last_lines(
    project: Path, tests: str, arguments: tuple[str, ...]
) -> None:
    code, printed = run_planted(project, GREEN + tests, *arguments)

    assert code == 0, printed
    box = printed.splitlines()[-3 - tests.count("def test_") :]
    assert box[0] == box[-1] == "+" + "-" * (len(box[0]) - 2) + "+"
    assert "FLAKY" in box[1]
    for number, name in enumerate(["one", "two"][: len(box) - 3], 2):
        assert f"  test_planted.py::test_{name} " in box[number]
    assert "1 passed" in printed.split(REPEATED)[0]  # pytest's last line of either stage
    assert f"{len(box) - 3} passed" in printed.split(REPEATED)[1]


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (flaky("one") + RED, "failed again"),
        (flaky("one", "two", "three"), "more than 2 flaky tests"),
    ],
)
def test_tests_that_fail_again_or_too_many_flaky_ones_are_red(
    project: Path, tests: str, reason: str
) -> None:
    code, printed = run_planted(project, GREEN + tests)

    assert code == 1, printed
    assert REPEATED in printed
    assert reason in printed


@pytest.mark.parametrize(
    ("tests", "arguments", "reason"),
    [
        (DOUBLE_SPEND, IN_TWO_PROCESSES, "exact tests failed"),
        (flaky("one") + DOUBLE_SPEND, (), "test_planted.py::test_no_credit_is_spent_twice "),
        (flaky(*"abcdef"), (), "6 tests failed"),
        ("import nothing_of_this_name\n", (), "cannot be collected"),
        ("import nothing_of_this_name\n", IN_TWO_PROCESSES, "cannot be collected"),
        ("1 / 0\n", ("--continue-on-collection-errors",), "cannot be collected"),
        (CRASH, (), "exit code 3"),
        (flaky("one") + CRASH, IN_TWO_PROCESSES, "process gw"),
        (flaky("one") + INTERRUPT, (), "exit code 2"),
    ],
)
def test_other_failures_are_red_at_once(
    project: Path, tests: str, arguments: tuple[str, ...], reason: str
) -> None:
    code, printed = run_planted(project, GREEN + tests, *arguments)

    assert code == 1, printed
    assert REPEATED not in printed
    assert reason in printed.split("| FAILED, not repeated: ")[1]


SKIPS = """
def test_by_itself(): pytest.skip("a limit is not kept here")
@pytest.mark.skipif(True, reason="no namespaces here")
def test_by_a_mark(): pass
"""


@pytest.mark.parametrize(
    ("marks", "required", "code"), [("sandbox", "1", 1), ("sandbox", "", 0), ("exact", "1", 0)]
)
def test_a_sandbox_test_that_skips_itself_is_red_where_sandboxes_are_required(
    project: Path, marks: str, required: str, code: int
) -> None:
    hook = "from tests.support.sandbox_support import pytest_runtest_makereport\n"
    (project / "conftest.py").write_text(hook)
    (project / "test_planted.py").write_text(
        f"{HEAD}pytestmark = pytest.mark.{marks}\n{GREEN}{SKIPS}"
    )
    found, printed = run_gate(
        project, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", TOLLHOUSE_REQUIRE_SANDBOX=required
    )

    assert found == code, printed
    assert ("and skipped itself" in printed) is bool(code), printed


def test_a_key_that_a_test_leaves_in_a_file_is_red_by_a_verdict_with_a_name(project: Path) -> None:
    (project / "test_planted.py").write_text(
        f"{HEAD}{flaky('one')}\nfrom tests.support.canaries import PLANTED\n"
        "def test_leak(tmp_path): (tmp_path / 'server.log').write_text(PLANTED[0])\n"
    )
    code, printed = run_gate(project, "--verdicts", VERDICTS)

    assert code == 1, printed
    assert "verdicts.py::test_no_file_that_the_run_wrote_holds_a_secret" in printed, printed
    assert "test_leak0/server.log" in printed
    assert "1 failed, 1 passed in" in printed
    assert "FLAKY" not in printed


@pytest.mark.parametrize("place", EXACT)
def test_each_place_of_exact_tests_exists(place: str) -> None:
    assert list(ROOT.glob(f"{place}*"))


def test_tests_of_an_exact_place_are_marked() -> None:
    files = ["tests/unit/kernel/test_secret.py", "tests/unit/kernel/test_errors.py"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "exact", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{files[0]}::" in found.stdout
    assert f"{files[1]}::" not in found.stdout
