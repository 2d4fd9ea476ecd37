"""A sample matches its schema, is deterministic and bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from tollhouse.inference.providers.simulated.replies import sample, sample_object

TREE = {
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
                "others": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            },
            "required": ["value", "next", "others"],
        }
    },
    "$ref": "#/$defs/Node",
}


def sampled(schema: object) -> object:
    return sample(Raw(json.dumps(schema).encode()))


def of(properties: dict[str, Any], required: object = None) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "integer"}, 1),
        ({"type": "number"}, 1.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["integer", "null"]}, 1),
        ({"enum": ["b", "a"]}, "b"),
        ({"type": "string", "enum": ["b", "a"]}, "b"),
        ({"const": {"a": 1}}, {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"type": "array"}, []),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "text"),
        ({"allOf": [of({"a": {"type": "integer"}})]}, {"a": 1}),
        (of({"a": {"type": "string"}, "b": {"type": "integer"}}, ["b"]), {"b": 1}),
        (of({"a": of({"b": {"type": "boolean"}})}), {"a": {"b": True}}),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "text"}),
        (of({}, ["unknown"]), {"unknown": None}),
        ({"items": {"type": "string"}}, ["text"]),
        ({}, None),
        (True, None),
    ],
)
def test_a_value_is_of_the_type_that_the_schema_names(schema: object, value: object) -> None:
    assert sampled(schema) == value


@pytest.mark.parametrize("ref", ["#/$defs/a~1b", "#/definitions/c", "#/properties/y"])
def test_a_reference_within_the_schema_is_followed(ref: str) -> None:
    kinds = {"$defs": {"a/b": {"type": "integer"}}, "definitions": {"c": {"type": "integer"}}}
    assert sampled(kinds | of({"x": {"$ref": ref}, "y": {"type": "integer"}}, ["x"])) == {"x": 1}


@pytest.mark.parametrize("ref", ["#/$defs/none", "https://else.example/schema", "", "#/type/x", 7])
def test_a_dangling_reference_is_null(ref: object) -> None:
    assert sampled(of({"x": {"$ref": ref}})) == {"x": None}


def test_a_recursive_schema_terminates() -> None:
    assert sampled(TREE) == {"value": 1, "next": None, "others": []}


def test_a_short_schema_of_a_huge_value_is_cut() -> None:
    levels = {
        f"l{n}": of({name: {"$ref": f"#/$defs/l{n + 1}"} for name in "abcd"}) for n in range(20)
    }
    value = sampled({"$defs": levels, "$ref": "#/$defs/l0"})
    assert len(json.dumps(value)) < 100_000


def test_a_list_of_names_that_many_values_refer_to_is_cut() -> None:
    names = of({f"n{number}": {} for number in range(2_000)})
    schema = of({f"p{number}": {"$ref": "#/$defs/names"} for number in range(300)})
    assert len(json.dumps(sampled({"$defs": {"names": names}, **schema}))) < 100_000


@pytest.mark.parametrize("given", [{"const": "x" * 1_000}, {"enum": [["x" * 1_000]]}])
def test_a_long_value_that_many_values_refer_to_is_cut(given: dict[str, Any]) -> None:
    schema = of({f"p{number}": {"$ref": "#/$defs/given"} for number in range(300)})
    value = sampled({"$defs": {"given": given}, **schema})
    assert value["p0"] == (given.get("const") or given["enum"][0])
    assert len(json.dumps(value)) < 100_000


def test_a_deeply_nested_schema_is_cut() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(300):
        schema = of({"a": schema})
    assert len(json.dumps(sampled(schema))) < 1_000


@pytest.mark.parametrize("schema", [b"[", b"null", b'{"type": "string"}', b"[1]", b"7"])
def test_arguments_are_an_object_whatever_the_schema_is(schema: bytes) -> None:
    assert sample_object(Raw(schema)) == {}


KEYWORDS = ("type", "properties", "required", "items", "enum", "anyOf", "$ref", "const", "$defs")
JSON = st.recursive(
    st.sampled_from([None, True, 1, "object", "array", "#", "#/properties/type", "type"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_a_sample_is_deterministic(schema: object) -> None:
    assert sampled(schema) == sampled(schema)
