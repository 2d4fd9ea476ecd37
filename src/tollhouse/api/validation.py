"""A request that does not fit its route, as one of our errors: which field, and why.

The text names the path of the field and the rule that it breaks, never what was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_SHOWN = 5
_LONGEST_PATH = 100
_TEXTS = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
}
_NOT_AN_OBJECT = frozenset({"model_attributes_type", "model_type", "dict_type"})


def invalid_request(errors: Sequence[Mapping[str, Any]], content_type: str | None) -> Invalid:
    """Return the refusal of a request.

    Args:
        errors: What the framework's validation found.
        content_type: The request's `Content-Type`.
    """
    first = errors[0]
    place = tuple(first["loc"])
    if first["type"] == "json_invalid":
        return Invalid(f"The body is not JSON: {first['ctx']['error']} at position {place[1]}.")
    if place == ("body",):
        return Invalid(_whole_body(first["type"], content_type))
    shown = [f"{_path(each['loc'])}: {_text(each)}" for each in errors[:_MOST_SHOWN]]
    if len(errors) > _MOST_SHOWN:
        shown.append(f"and {len(errors) - _MOST_SHOWN} more")
    return Invalid("; ".join(shown) + ".")


def _whole_body(kind: str, content_type: str | None) -> str:
    if kind == "missing":
        return "The request needs a body: a JSON object."
    if kind in _NOT_AN_OBJECT and content_type and "json" not in content_type.lower():
        return "Send the body as JSON, with Content-Type: application/json."
    return "The body must be a JSON object."


def _path(place: Sequence[str | int]) -> str:
    path = ".".join(str(part) for part in place[1:])
    return path if len(path) <= _LONGEST_PATH else path[:_LONGEST_PATH] + "..."


def _text(error: Mapping[str, Any]) -> str:
    return _TEXTS.get(error["type"]) or str(error["msg"]).rstrip(".")
