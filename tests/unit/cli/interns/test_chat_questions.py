from typing import Any

import pytest

from tollhouse.cli.interns.chat_stream import (
    AnswerNotAccepted,
    FormField,
    FormQuestion,
    PermissionQuestion,
)

ALL = ["allow_once", "allow_always", "reject_once", "reject_always"]


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
    assert PermissionQuestion(ALL).parse(typed) == option


@pytest.mark.parametrize("typed", ["", "0", "5", "allow", "y"])
def test_an_option_that_was_not_offered_is_none(typed: str) -> None:
    with pytest.raises(AnswerNotAccepted, match="allow_always, cancel"):
        PermissionQuestion(["allow_always"]).parse(typed)


@pytest.mark.parametrize(
    ("options", "safe"), [(ALL, "reject_once"), (["allow_once"], "cancel"), ([], "cancel")]
)
def test_nobody_allows_nothing(options: list[str], safe: str) -> None:
    assert PermissionQuestion(options).deny() == safe


def test_consent_is_for_once_and_never_for_a_form() -> None:
    assert PermissionQuestion(ALL).approve() == "allow_once"
    assert PermissionQuestion(["allow_always"]).approve() is None
    assert FormQuestion("?", []).approve() is None


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        (FormField("a"), " x ", "x"),
        (FormField("a", "date"), "2027-01-01", "2027-01-01"),
        (FormField("a", "integer"), "-3", -3),
        (FormField("a", "number"), "0.5", 0.5),
        (FormField("a", "boolean"), "No", False),
        (FormField("a", options=["red", "blue"]), "RED", "red"),
        (FormField("a", options=["red", "blue"]), "2", "blue"),
        (FormField("a", "integer", options=[10, 20]), "20", 20),
        (FormField("a", "array", options=["x", "y", "z"]), "x, 3", ["x", "z"]),
        (FormField("a", "array"), "p,q", ["p", "q"]),
        (FormField("a"), "  ", None),
    ],
)
def test_a_field_has_the_value_of_its_type(field: FormField, typed: str, value: Any) -> None:
    assert field.parse(typed) == value


@pytest.mark.parametrize(
    ("field", "typed"),
    [
        (FormField("a", required=True), " "),
        (FormField("a", "integer"), "1.5"),
        (FormField("a", "number"), "nan"),
        (FormField("a", "number"), "inf"),
        (FormField("a", "boolean"), "maybe"),
        (FormField("a", options=["red"]), "green"),
        (FormField("a", options=["red"]), "2"),
        (FormField("a", "array", options=["x"]), "x,y"),
    ],
)
def test_a_field_takes_no_value_of_another_type(field: FormField, typed: str) -> None:
    with pytest.raises(AnswerNotAccepted, match=r"^a\b"):
        field.parse(typed)


FORM = FormQuestion("?", [FormField("n", "integer", required=True), FormField("note")])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('{"n": 3}', {"n": 3}),
        ('{"n": "3", "note": null}', {"n": 3}),
        ("n: 3\n\nnote: a: b\n", {"n": 3, "note": "a: b"}),
    ],
)
def test_a_form_is_filled_in_with_json_or_lines(text: str, values: dict[str, Any]) -> None:
    assert FORM.values(text) == values


@pytest.mark.parametrize("text", ['{"n": 3', "three", '{"m": 1, "n": 3}', '{"note": "x"}', ""])
def test_a_form_that_is_not_filled_in_is_unfit(text: str) -> None:
    with pytest.raises(AnswerNotAccepted):
        FORM.values(text)
