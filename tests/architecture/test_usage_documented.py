"""The page of formats has every name and place of a usage, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.seams.formats import COUNTS, PLACES

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
SECTION = PAGE.partition("## Usage\n")[2].partition("\n## ")[0]


def test_the_page_has_the_names_of_every_count() -> None:
    rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \|$", SECTION, re.MULTILINE)
    documented = [re.findall(r"`([^`]+)`", row) for row in rows]
    assert documented == [names.split() for names in COUNTS.values()]


def test_the_page_has_every_place() -> None:
    assert ", ".join(f"`{place}`" for place in PLACES) in SECTION
