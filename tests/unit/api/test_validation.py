from typing import Any

from tollhouse.api.errors import invalid_request


def error(kind: str, *place: str | int, msg: str = "Some rule.", **ctx: Any) -> dict[str, Any]:
    return {"type": kind, "loc": place, "msg": msg, "input": "what was sent", "ctx": ctx}


def text(*errors: dict[str, Any], content_type: str | None = "application/json") -> str:
    return invalid_request(errors, content_type).message


def test_names_the_field_and_the_rule() -> None:
    assert text(error("int_type", "query", "limit")) == "limit: Some rule."


def test_names_the_whole_path_of_a_field() -> None:
    assert text(error("int_type", "body", "parts", 3, "size")) == "parts.3.size: Some rule."


def test_says_that_a_field_is_missing_or_unknown() -> None:
    missing, unknown = error("missing", "body", "name"), error("extra_forbidden", "body", "nmae")

    assert text(missing, unknown) == "name: is required; nmae: is not a known field."


def test_shows_five_fields_and_counts_the_rest() -> None:
    many = [error("missing", "body", str(number)) for number in range(8)]

    assert text(*many).endswith("4: is required; and 3 more.")


def test_cuts_a_path_that_is_too_long() -> None:
    shown = text(error("extra_forbidden", "body", "x" * 101))

    assert shown == f"{'x' * 100}...: is not a known field."


def test_names_the_position_of_what_is_not_json() -> None:
    wrong = error("json_invalid", "body", 17, error="Expecting value")

    assert text(wrong) == "The body is not JSON: Expecting value at position 17."


def test_says_that_there_is_no_body() -> None:
    assert text(error("missing", "body")) == "The request needs a body: a JSON object."


def test_says_that_the_body_is_no_object() -> None:
    for content_type in ("application/json", "application/vnd.acme+json; charset=utf-8", None):
        wrong = error("model_attributes_type", "body")
        assert text(wrong, content_type=content_type) == "The body must be a JSON object."


def test_says_that_the_body_is_sent_as_something_else() -> None:
    wrong = error("model_attributes_type", "body")

    assert text(wrong, content_type="text/plain") == (
        "Send the body as JSON, with Content-Type: application/json."
    )


def test_never_shows_what_was_sent() -> None:
    for wrong in (error("int_type", "body", "x"), error("model_type", "body")):
        assert "what was sent" not in text(wrong)
