from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.values import escape_controls


def test_an_escape_is_shown_and_not_obeyed() -> None:
    assert escape_controls("\x1b[2J\x07\x9b31m\x7f") == "^[[2J^G\\u009b31m^?"


def test_newlines_tabs_and_every_script_stay() -> None:
    text = "a\n\tb é 漢字 עברית 👩\u200d💻"
    assert escape_controls(text) == text


def test_a_carriage_return_hides_nothing() -> None:
    assert escape_controls("rm -rf /\rls\r\n") == "rm -rf /ls\n"


def test_the_direction_of_a_line_is_not_turned() -> None:
    assert escape_controls("\u202e\u2066") == "\\u202e\\u2066"


@given(st.text(), st.integers(0, 50))
def test_it_may_be_cut_anywhere(text: str, cut: int) -> None:
    assert escape_controls(text[:cut]) + escape_controls(text[cut:]) == escape_controls(text)


@given(st.text(st.characters(codec="utf-8", categories=["Cc"])))
def test_no_control_character_is_left(text: str) -> None:
    assert all(char.isprintable() or char in "\n\t" for char in escape_controls(text))
