import json

from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.output import Column, OutputStyle, Record, Table, column, format_value, render
from tollhouse.cli.values import escape_controls, escape_unprintable

PEOPLE = OutputStyle(terminal=True)
PIPE = OutputStyle()
JSON = OutputStyle(json=True, terminal=True)
ITEMS = [
    {"id": "1", "name": "Ada", "hash": "abcdef", "more": 1},
    {"id": "22", "name": None, "hash": "fedcba", "more": 2},
]
LISTING = Table(
    ITEMS,
    [
        column("id"),
        column("name", "who"),
        Column("hash", lambda item: item["hash"], lambda t: t[:3]),
    ],
)


def test_people_get_a_table() -> None:
    assert render(LISTING, PEOPLE).splitlines() == ["ID  WHO  HASH", "1   Ada  abc", "22  -    fed"]


def test_pipes_get_whole_values_between_tabs_and_no_heading() -> None:
    assert render(LISTING, PIPE).splitlines() == ["1\tAda\tabcdef", "22\t-\tfedcba"]


def test_an_empty_list_says_so_to_people_only() -> None:
    empty = Table([], LISTING.columns)
    assert [render(empty, how) for how in (PEOPLE, PIPE, JSON)] == ["none", "", "[]"]


def test_a_record_is_a_line_for_each_field() -> None:
    record = Record({"name": "Ada", "key": "sk-th", "on": True}, note="Keep it.")
    assert render(record, PEOPLE).splitlines() == [
        "name  Ada",
        "key   sk-th",
        "on    yes",
        "",
        "Keep it.",
    ]
    assert render(record, PIPE).splitlines() == ["name\tAda", "key\tsk-th", "on\tyes"]
    assert json.loads(render(record, JSON)) == record.item


def test_values_are_written_for_people() -> None:
    values = [None, "", True, False, 0.0, 1.5, 1e-9, 100.0, 7, ["a"], {"a": None}]
    assert [format_value(value) for value in values] == [
        *("-", "-", "yes", "no", "0", "1.5", "0.000000001", "100", "7", '["a"]', '{"a": null}')
    ]


@given(st.text())
def test_a_name_of_somebody_else_cannot_steer_the_terminal_or_break_a_line(name: str) -> None:
    for how in (PEOPLE, PIPE):
        text = render(Record({"name": name}), how)
        assert all(char.isprintable() or char == "\t" for char in text)
        assert text.count("\t") == (how is PIPE)


def test_what_cannot_be_printed_of_a_name_is_visible() -> None:
    assert escape_unprintable("a\x1b[2J\u202eb\n") == "a\\x1b[2J\\u202eb\\n"
    assert escape_unprintable("Ada 日本") == "Ada 日本"


@given(st.text(), st.text())
def test_two_names_never_look_alike(one: str, other: str) -> None:
    assert escape_unprintable(one).isprintable()
    assert (escape_unprintable(one) == escape_unprintable(other)) == (one == other)


def test_a_table_names_the_columns_for_which_there_is_no_room() -> None:
    listing = Table(
        [{"a": "x" * 10, "b": "y" * 10, "c": "z"}], [column("a"), column("b"), column("c")]
    )
    text = render(listing, OutputStyle(terminal=True, width=22))
    assert max(map(len, text.splitlines()[:2])) <= 22
    assert "No room here for: c." in text
    assert "No room" not in render(listing, OutputStyle(terminal=True, width=25))
    assert "No room" not in render(listing, OutputStyle(width=5))


def test_a_text_may_have_lines_and_obeys_no_escape() -> None:
    assert escape_controls("\x1b[2J\x07\x9b31m\x7f\u202e") == "^[[2J^G\\u009b31m^?\\u202e"
    assert escape_controls("rm -rf /\rls\r\n") == "rm -rf /ls\n"
    assert escape_controls("a\n\tb é 漢字 👩\u200d💻") == "a\n\tb é 漢字 👩\u200d💻"


@given(st.text(), st.integers(0, 50))
def test_a_text_may_be_cut_anywhere_and_keeps_no_control(text: str, cut: int) -> None:
    shown = escape_controls(text[:cut]) + escape_controls(text[cut:])
    assert shown == escape_controls(text)
    assert not any(char < " " and char not in "\n\t" for char in shown)
