"""Generates a deterministic sample value of a JSON schema. Pure.

    {type: object, properties: {city: {type: string}}, required: [city]}  ->  {"city": "text"}

An object has its required properties, an array one item, a choice its first. Bounds of numbers and
strings, patterns and formats are ignored.

Source: https://json-schema.org/understanding-json-schema/reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

_PLAIN: Final[Mapping[str, object]] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "null": None,
}
_MOST_VALUES: Final = 1_000
_MOST_GIVEN: Final = 64 * 1024
"""Bytes of constants in the schema: references can repeat a long one many times."""
_DEEPEST: Final = 32


def sample(schema: Raw) -> object:
    """Return a sample value; null if the schema is empty or refers to itself."""
    try:
        read: object = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _Sampling(read).value(read, frozenset(), 0)


def sample_object(schema: Raw) -> dict[str, object]:
    """Return a sample object; an empty one if the schema is of another type."""
    value = sample(schema)
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


class _Sampling:
    """Samples one schema. Values are counted: a short schema can demand unbounded memory."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._left = _MOST_VALUES
        self._given_left = _MOST_GIVEN

    def value(self, schema: object, refs: frozenset[str], depth: int) -> object:
        """Return a sample value of a subschema.

        Args:
            schema: The subschema.
            refs: The references followed so far, to detect cycles.
            depth: The depth of the value.
        """
        self._left -= 1
        if not isinstance(schema, dict) or self._left < 0 or depth > _DEEPEST:
            return None
        keywords = cast("dict[str, object]", schema)
        if "const" in keywords:
            return self._given(keywords["const"])
        ref = keywords.get("$ref")
        if isinstance(ref, str):
            known = ref in refs
            return None if known else self.value(self._at(ref), refs | {ref}, depth + 1)
        for name in ("enum", "anyOf", "oneOf", "allOf"):
            options = _items(keywords.get(name))
            if options:
                first = options[0]
                return self._given(first) if name == "enum" else self.value(first, refs, depth + 1)
        return self._of_type(keywords, refs, depth + 1)

    def _given(self, value: object) -> object:
        if self._given_left >= 0:
            self._given_left -= len(msgspec.json.encode(value))
        return value if self._given_left >= 0 else None

    def _of_type(self, keywords: Mapping[str, object], refs: frozenset[str], depth: int) -> object:
        kind = _type(keywords)
        if kind == "object":
            properties = _properties(keywords)
            names = [name for name in _items(keywords.get("required")) if isinstance(name, str)]
            most = max(self._left, 0)
            return {name: self.value(properties.get(name), refs, depth) for name in names[:most]}
        if kind == "array":
            item = self.value(keywords.get("items"), refs, depth)
            return [] if item is None else [item]
        return _PLAIN.get(kind)

    def _at(self, ref: str) -> object:
        """Resolve a reference within the schema."""
        found = self._root if ref.startswith("#") else None
        for step in ref.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
        return found


def _type(keywords: Mapping[str, object]) -> str:
    """Return the type, or the first of several; infer it if the schema names none."""
    kinds = _items(keywords.get("type")) or [keywords.get("type")]
    if isinstance(kinds[0], str):
        return kinds[0]
    return "object" if "properties" in keywords else "array" if "items" in keywords else "null"


def _properties(keywords: Mapping[str, object]) -> Mapping[str, object]:
    given = keywords.get("properties")
    return cast("dict[str, object]", given) if isinstance(given, dict) else {}


def _items(value: object) -> Sequence[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
