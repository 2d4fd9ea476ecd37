"""The page of errors names every status that the program can answer with."""

import re
from pathlib import Path

import pytest

from tollhouse.kernel.errors import STATUS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
ROW = re.compile(r"^\| (\d{3}) \|", re.MULTILINE)
DOCUMENTED = {int(status) for status in ROW.findall(PAGE.read_text())}
FROM_THE_SERVER_ITSELF = {431}


@pytest.mark.parametrize("status", sorted(set(STATUS.values())))
def test_every_status_of_the_error_tree_is_documented(status: int) -> None:
    assert status in DOCUMENTED


def test_no_status_is_documented_that_cannot_happen() -> None:
    assert set(STATUS.values()) | FROM_THE_SERVER_ITSELF == DOCUMENTED
