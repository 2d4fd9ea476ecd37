"""`docs/development/upstream.md` names an existing test for each promise of the upstream client."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = [
    line.split("|")[1:3]
    for line in (ROOT / "docs" / "development" / "upstream.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("| promise", "|---"))
]
FOLDERS = ("component/outbound/http", "unit/outbound/http", "faults")
TESTS = {
    name
    for folder in FOLDERS
    for file in (ROOT / "tests" / folder).glob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[row[0] for row in PROMISES])
def test_a_promise_is_kept_by_tests_that_exist(promise: str, tests: str) -> None:
    named = re.findall(r"`(test_\w+)`", tests)
    assert named, promise
    assert set(named) <= TESTS
