import json
from typing import Any

import pytest

from tollhouse.cli.interns.chat_questions import (
    Elicitation,
    Field,
    Permission,
    Question,
    Unfit,
    cancelled,
    consented,
    read_field,
    read_form,
    read_option,
    refused,
)

ALL = ["allow_once", "allow_always", "reject_once", "reject_always"]


def question(asks: Permission | Elicitation) -> Question:
    return Question("c", "f", "{}", asks)


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        ("1", "allow_once"),
        (" Y ", "allow_once"),
        ("Allow Always", "allow_always"),
        ("reject-once", "reject_once"),
        ("n", "reject_once"),
        ("4", "reject_always"),
        ("c", "cancel"),
        ("cancel", "cancel"),
    ],
)
def test_an_option_is_typed_in_several_ways(typed: str, option: str) -> None:
    assert read_option(Permission(ALL), typed) == option


@pytest.mark.parametrize("typed", ["", "0", "5", "allow", "y"])
def test_an_option_that_was_not_offered_is_none(typed: str) -> None:
    with pytest.raises(Unfit, match="allow_always, cancel"):
        read_option(Permission(["allow_always"]), typed)


@pytest.mark.parametrize(
    ("options", "safe"), [(ALL, "reject_once"), (["allow_once"], "cancel"), ([], "cancel")]
)
def test_nobody_allows_nothing(options: list[str], safe: str) -> None:
    assert refused(question(Permission(options))) == safe


def test_nobody_declines_a_form_and_who_leaves_cancels_it() -> None:
    form = question(Elicitation("?", []))
    assert json.loads(refused(form)) == {"action": "decline"}
    assert json.loads(cancelled(form)) == {"action": "cancel"}


def test_consent_is_for_once_and_never_for_a_form() -> None:
    assert consented(question(Permission(ALL))) == "allow_once"
    assert consented(question(Permission(["allow_always"]))) is None
    assert consented(question(Elicitation("?", []))) is None


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        (Field("a"), " x ", "x"),
        (Field("a", "date"), "2027-01-01", "2027-01-01"),
        (Field("a", "integer"), "-3", -3),
        (Field("a", "number"), "0.5", 0.5),
        (Field("a", "boolean"), "No", False),
        (Field("a", options=["red", "blue"]), "RED", "red"),
        (Field("a", options=["red", "blue"]), "2", "blue"),
        (Field("a", "integer", options=[10, 20]), "20", 20),
        (Field("a", "array", options=["x", "y", "z"]), "x, 3", ["x", "z"]),
        (Field("a", "array"), "p,q", ["p", "q"]),
        (Field("a"), "  ", None),
    ],
)
def test_a_field_has_the_value_of_its_type(field: Field, typed: str, value: Any) -> None:
    assert read_field(field, typed) == value


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        (Field("a", required=True), " "),
        (Field("a", "integer"), "1.5"),
        (Field("a", "number"), "nan"),
        (Field("a", "number"), "inf"),
        (Field("a", "boolean"), "maybe"),
        (Field("a", options=["red"]), "green"),
        (Field("a", options=["red"]), "2"),
        (Field("a", "array", options=["x"]), "x,y"),
    ],
)
def test_a_field_takes_no_value_of_another_type(field: Field, typed: str) -> None:
    with pytest.raises(Unfit, match=r"^a\b"):
        read_field(field, typed)


FORM = Elicitation("?", [Field("n", "integer", required=True), Field("note")])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"n": 3}', {"n": 3}),
        ('{"n": "3", "note": null}', {"n": 3}),
        ("n: 3\n\nnote: a: b\n", {"n": 3, "note": "a: b"}),
    ],
)
def test_a_form_is_filled_in_with_json_or_lines(text: str, values: dict[str, Any]) -> None:
    assert read_form(FORM, text) == values


@pytest.mark.parametrize("text", ['{"n": 3', "three", '{"m": 1, "n": 3}', '{"note": "x"}', ""])
def test_a_form_that_is_not_filled_in_is_unfit(text: str) -> None:
    with pytest.raises(Unfit):
        read_form(FORM, text)


@pytest.mark.parametrize("text", ["3", "n: 3", '{"n": 3}'])
def test_the_only_field_needs_no_name(text: str) -> None:
    assert read_form(Elicitation("?", FORM.fields[:1]), text) == {"n": 3}
