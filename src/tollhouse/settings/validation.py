"""Plain data in, `Settings` or every problem out.

Turns the validation library's errors into sentences of ours. They name the setting and what it
takes, never what was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pydantic import ValidationError

from tollhouse.settings.agreement import agreement_problems
from tollhouse.settings.description import names_at
from tollhouse.settings.fields import Refusal
from tollhouse.settings.problems import Location, Problem, nearest
from tollhouse.settings.sections import AGREEMENT, PRICING_SHAPES, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

_SENTENCES: Mapping[str, str] = {
    "missing": "is required",
    "model_type": "must be a mapping of names to values",
    "mapping_type": "must be a mapping of names to values",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than_equal": "must be at most {le:g}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least one entry",
    "literal_error": "must be {expected}",
    "path_type": "must be a path",
}
_FOLLOWS_FROM_ANOTHER = frozenset(("default_factory_not_called", AGREEMENT))


def validate(tree: Mapping[str, object]) -> Settings | list[Problem]:
    """Return the settings that plain data means, or all that is wrong with it."""
    problems = agreement_problems(tree)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        return [*_translated(details), *problems]
    return problems or settings


def _translated(details: list[ErrorDetails]) -> list[Problem]:
    locations = [detail["loc"] for detail in details]
    return [
        Problem(_location(detail["loc"]), _sentence(detail))
        for detail in details
        if detail["type"] not in _FOLLOWS_FROM_ANOTHER
        # A list whose entries are all broken is called too short as well.
        and not (detail["type"] == "too_short" and _has_one_inside(detail["loc"], locations))
    ]


def _has_one_inside(outer: Location, locations: list[Location]) -> bool:
    return any(len(other) > len(outer) and other[: len(outer)] == outer for other in locations)


def _location(steps: Location) -> Location:
    """Take out what the library adds: the shape of a price that it tried, and a refused key.

    The key itself goes too: somebody may have put a whole header there, with its secret.
    """
    if steps and steps[-1] == "[key]":
        return steps[:-2]
    return tuple(
        step
        for before, step in zip((None, *steps), steps, strict=False)
        if not (before == "pricing" and step in PRICING_SHAPES)
    )


def _sentence(detail: ErrorDetails) -> str:
    location = _location(detail["loc"])
    facts = cast("dict[str, object]", detail.get("ctx", {}))
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"there is no such setting{_nearest_to(location)}"
    if kind == "literal_error" and location[-1] == "pricing":
        return 'must be a mapping of prices, or "free"'
    refusal = facts.get("error")
    if isinstance(refusal, Refusal):
        return str(refusal)
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map(facts)
    # The library's own sentences do not repeat what was given.
    return detail["msg"]


def _nearest_to(location: Location) -> str:
    near = nearest(str(location[-1]), names_at(location[:-1]))
    return f"; the nearest is {near!r}" if near else ""
