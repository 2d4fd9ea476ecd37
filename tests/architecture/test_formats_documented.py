"""The page of formats has the tables of what providers send: every word of them, and no other."""

import re
from pathlib import Path

from tests.support.seams.formats import COUNTS, PLACES
from tests.support.seams.inference import CODES_BY_STATUS, FULL_CONTEXT, TYPE_BY_CODE, WORDS

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(title: str) -> list[tuple[str, list[str]]]:
    """Return the first column of a table and the names in its second."""
    found = re.findall(r"^\| ([^|]+) \| (`[^|]+`) \|$", section(title), re.MULTILINE)
    return [(first, re.findall(r"`([^`]+)`", names)) for first, names in found]


def test_the_page_has_the_names_of_every_count() -> None:
    assert [names for _, names in rows("Usage")] == [each.split() for each in COUNTS.values()]


def test_the_page_has_every_place() -> None:
    assert ", ".join(f"`{place}`" for place in PLACES) in section("Usage")


def test_the_page_has_every_word_of_a_finish_reason() -> None:
    assert rows("Finish reasons") == [(f"`{to}`", each.split()) for to, each in WORDS.items()]


def test_the_page_has_every_code_of_an_error() -> None:
    types = dict.fromkeys(TYPE_BY_CODE.values())
    of_types = [
        (f"`{to}`", [code for code, each in TYPE_BY_CODE.items() if each == to]) for to in types
    ]
    of_statuses = [(str(status), codes.split()) for status, codes in CODES_BY_STATUS.items()]
    assert rows("Errors of providers") == of_statuses + of_types


def test_the_page_has_every_server_s_words_of_a_full_context() -> None:
    lines = "\n".join(f"- {servers}: `{words}`" for servers, words in FULL_CONTEXT.items())
    assert lines in section("Errors of providers")
