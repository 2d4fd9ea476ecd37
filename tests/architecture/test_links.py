"""Links between the pages of the documentation lead somewhere, and tests that they name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
TEST_FILE = re.compile(r"`(tests/[^`\s<]+|test_\w+\.py)`")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return what headings are called in links: lower case, hyphens for blanks, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def leads(page: Path, target: str, anchor: str) -> bool:
    there = (page.parent / target).resolve() if target else page
    return there.exists() and (not anchor or anchor in anchors(there))


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    links = LINK.findall(CODE.sub("", page.read_text()))
    assert [link for link in links if not leads(page, *link)] == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_file_of_tests_that_a_page_names_is_there(page: Path) -> None:
    named = TEST_FILE.findall(page.read_text())
    patterns = {each: each if each.startswith("tests/") else f"tests/**/{each}" for each in named}
    assert [name for name, pattern in patterns.items() if not any(ROOT.glob(pattern))] == []


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / target).resolve() for target, _ in LINK.findall(index.read_text())}
    pages = set((ROOT / "docs").rglob("*.md")) - {index}
    assert sorted(pages - listed) == []
