"""`docs/reference/limits.md` has every rule of the limits, and another page the tests of each row.

`docs/development/limits-tests.md` has the same tables with the same rows in the same order, and
each test that it names exists. Every reason of a 402 and every setting of the limits is on the
page, too.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.seams.accounting import rules
from tollhouse.settings.sections import LimitsSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "limits.md").read_text(encoding="utf-8")
TESTS = (ROOT / "docs" / "development" / "limits-tests.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(test_\w+)`")
NOUNS = {"key_limit", "member_limit", "end_user_limit", "workspace_limit"}
TEST = re.compile(r"\btest_\w+|\btests/|\bpytest\b")


def cells(line: str) -> list[str]:
    """Return the cells of a table's line."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def tables(page: str) -> Iterator[list[list[str]]]:
    """Return the tables of a page: their heads, then their rows, without the ruler."""
    for block in re.findall(r"(?:^\|.*\n)+", page + "\n", re.MULTILINE):
        head, _, *rows = block.splitlines()
        yield [cells(head), *map(cells, rows)]


def functions(folder: Path) -> set[str]:
    """Return the names of all tests, those of classes too."""
    return {
        node.name
        for file in folder.rglob("test_*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
    }


def problems(page: str, known: set[str]) -> list[str]:
    """Return what is wrong with a page's tables, a line for each place."""
    found: list[str] = []
    for head, *rows in tables(page):
        if head[-1] != "Test":
            found.append(f"no column Test: {head}")
        found += [f"as many cells as columns: {row}" for row in rows if len(row) != len(head)]
        found += [f"an empty cell: {row}" for row in rows if not all(row)]
        found += [f"no test: {row}" for row in rows if not NAME.search(row[-1])]
    return found + [f"no such test: {name}" for name in NAME.findall(page) if name not in known]


def names(page: str) -> list[list[str]]:
    """Return what the rows of each table are called: a numbered one by its second cell, too."""
    return [
        [f"{row[0]}. {row[1]}" if row[0].isdigit() else row[0] for row in body]
        for _, *body in tables(page)
    ]


def reasons() -> set[str]:
    """Return the reasons that the code gives for refusing with a 402."""
    of_limits = {words.reason.format(noun=noun) for words in rules.OF_LIMITS for noun in NOUNS}
    of_balance = {words.reason.format(noun="credits") for words in rules.OF_BALANCE}
    others = (rules.NEGATIVE, rules.TOO_HEAVY, rules.IN_FLIGHT, rules.BATCH_HELD)
    return of_limits | of_balance | {words.reason for words in others}


def test_every_row_names_a_test_that_exists() -> None:
    assert problems(TESTS, functions(ROOT / "tests")) == []


def test_both_pages_have_the_same_rows_in_the_same_order() -> None:
    assert names(TESTS) == names(PAGE)


def test_a_page_for_users_names_no_tests() -> None:
    guides = [*(ROOT / "docs" / "guide").iterdir(), *(ROOT / "docs" / "reference").iterdir()]
    pages = [ROOT / "README.md", ROOT / "docs" / "formats.md", *guides]
    assert [page.name for page in pages if TEST.search(page.read_text(encoding="utf-8"))] == []


def test_the_pages_have_tables() -> None:
    assert sum(len(rows) for _, *rows in tables(PAGE)) > 60


def test_every_reason_of_a_402_has_its_row() -> None:
    assert reasons()
    first = {row[0].strip("`") for _, *rows in tables(PAGE) for row in rows}
    # An end user's budget refuses no batch.
    assert reasons() - {"batch_exceeds_end_user_limit"} <= first


@pytest.mark.parametrize("name", LimitsSettings.model_fields)
def test_every_setting_of_the_limits_is_on_the_page(name: str) -> None:
    assert f"`limits.{name}`" in PAGE


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("| a | Test |\n|---|---|\n| b | `test_gone` |\n", "no such test: test_gone"),
        ("| a | Test |\n|---|---|\n| b |  |\n", "an empty cell: ['b', '']"),
        ("| a | Test |\n|---|---|\n|  | `test_here` |\n", "an empty cell: ['', '`test_here`']"),
        ("| a | Test |\n|---|---|\n| b | c |\n", "no test: ['b', 'c']"),
        ("| a | b |\n|---|---|\n| c | `test_here` |\n", "no column Test: ['a', 'b']"),
        ("| a | Test |\n|---|---|\n| `test_here` |\n", "as many cells as columns: ['`test_here`']"),
    ],
)
def test_a_wrong_table_is_reported(page: str, problem: str) -> None:
    assert problem in problems(page, {"test_here"})
