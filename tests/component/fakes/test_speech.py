"""What all stubs share: words, schema examples, signatures and the list of models."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.support.providers.openai_upstream
from tests.support.providers import anthropic_messages, openai_behaviours, openai_responses
from tests.support.providers.stub_text import (
    before_stop_sequence,
    example,
    is_token,
    pieces,
    signed,
    token,
)


@given(st.text().filter(str.strip))
@settings(max_examples=50)
def test_the_pieces_of_a_text_join_to_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_the_first_stop_sequence_in_the_text_counts() -> None:
    assert before_stop_sequence("one two three", ["three", "two"]) == ("one ", "two")
    assert before_stop_sequence("one", ["two"]) == ("one", None)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "value"),
        ({"type": ["integer", "null"]}, 1),
        ({"enum": ["red", "blue"]}, "red"),
        ({"const": 0}, 0),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, True),
        ({"type": "array", "items": {"type": "number"}}, [1.5]),
        ({"properties": {"a": {}, "b": {}}, "required": ["a"]}, {"a": "a"}),
        (
            {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}},
            {"a": None},
        ),
    ],
)
def test_a_schema_has_an_example(schema: dict[str, Any], value: object) -> None:
    assert example(schema) == value


def test_a_dangling_reference_has_no_example() -> None:
    with pytest.raises(ValueError, match="nowhere"):
        example({"$ref": "#/$defs/n"})


def test_an_altered_token_is_invalid() -> None:
    made = token("enc", "a thought")
    assert is_token("enc", made)
    assert not is_token("redacted", made)
    assert not is_token("enc", made[:-1] + ("0" if made[-1] != "0" else "1"))
    assert signed("sig", "a thought") != signed("sig", "another")


@pytest.mark.parametrize("module", [openai_behaviours, openai_responses, anthropic_messages])
def test_every_model_is_documented(module: Any) -> None:
    documented = str(tests.support.providers.openai_upstream.__doc__)
    named = {name for name in module.BEHAVIOURS if name in documented or name.endswith("-2026")}
    assert named == set(module.BEHAVIOURS)
