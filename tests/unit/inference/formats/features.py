"""The features of requests and replies in `features/`, and their place in each format.

    says        the places, beside those of the plain body, by which a client (or provider) says it
    beside      fields of the body that it needs
    own         its place and value in each format: there it is kept
    other       its place in another form: there it is changed; by target, or by `from -> to`
    aside       places that remain when it is dropped
    covers      the canonical fields that it covers: `ImageBlock.url`
    parameter   of a request: its name among `given_parameters`
    asks        of a reply: the fields of its request, by client; `clients` can ask for it
    streams     events, where they cannot be derived from a complete reply; without `whole` or
                `streamed` it is seen in the other way alone

Formats go by their names in the documentation: chat, responses, messages, completions; what several
say in the same way has all their names. A place is a path with dots, `messages.0.content`; all
places of a format must hold the given values. `$hello` stands for a value of `known`, and `th1` for
the text that reasoning is packed into.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.seams.inference import ReasoningBlock, pack

FOLDER = Path(__file__).parent / "features"
Places = dict[str, Any]
Body = dict[str, Any]
MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Feature:
    says: dict[str, Body]
    """By format: the body that expresses it."""
    plain: dict[str, Body]
    """By format: the same without it."""
    own: dict[str, Places] = field(default_factory=dict[str, Places])
    other: dict[str, Places] = field(default_factory=dict[str, Places])
    aside: tuple[str, ...] = ()
    covers: tuple[str, ...] = ()
    parameter: str | None = None
    asks: dict[str, Body] = field(default_factory=dict[str, Body])
    clients: tuple[str, ...] = ("chat", "responses", "messages", "completions")
    streams: dict[str, list[Body]] = field(default_factory=dict[str, list[Body]])
    whole: bool = True
    streamed: bool = True


def features(kind: str) -> tuple[dict[str, Body], dict[str, Feature]]:
    """Return a minimal body of each format, and the features by name in the documentation."""
    given = yaml.load((FOLDER / f"{kind}.yaml").read_bytes(), yaml.CSafeLoader)
    known = {f"${name}": _full(value, {}) for name, value in given["known"].items()}
    return given["plain"], {
        name: _feature(given["plain"], _full(row, known)) for name, row in given["features"].items()
    }


def _full(value: Any, known: Body) -> Any:
    """Return a value with those that it names in their place."""
    if isinstance(value, list):
        return [_full(each, known) for each in value]
    if isinstance(value, str):
        return known.get(value, value)
    if not isinstance(value, dict):
        return value
    if "th1" in value:
        return pack(ReasoningBlock(**value["th1"]))
    return {name: _full(each, known) for name, each in value.items()}


def _feature(plain: dict[str, Body], row: Body) -> Feature:
    for name in ("says", "beside", "own", "other", "asks", "streams"):
        given = row.get(name, {}).items()
        row[name] = {form: value for forms, value in given for form in forms.split(", ")}
    under = {form: body | row["beside"].get(form, {}) for form, body in plain.items()}
    says = {form: _with(under[form], places) for form, places in row["says"].items()}
    del row["beside"]
    return Feature(**row | {"says": says, "plain": under})


def _with(body: Body, places: Places) -> Body:
    """Return a copy with values at some places."""
    copy = deepcopy(body)
    for path, value in places.items():
        above, _, name = path.rpartition(".")
        place = found(copy, above) if above else copy
        place[int(name) if isinstance(place, list) else name] = deepcopy(value)
    return copy


def found(body: Any, path: str) -> Any:
    """Return the value at a path; MISSING if there is none."""
    for step in path.split("."):
        if isinstance(body, dict) and step in body:
            body = body[step]
        elif isinstance(body, list) and step.lstrip("-").isdigit():
            at = int(step)
            if not -len(body) <= at < len(body):
                return MISSING
            body = body[at]
        else:
            return MISSING
    return body


def holds(body: Any, places: Places | None) -> bool:
    """Return whether every place holds its value."""
    if not places:
        return False
    return all(found(body, path) == value for path, value in places.items())


def _without(body: Body, paths: tuple[str, ...]) -> Body:
    """Return a copy without the values at some paths."""
    copy = deepcopy(body)
    for path in paths:
        above, _, name = path.rpartition(".")
        place = found(copy, above)
        if isinstance(place, dict):
            place.pop(name, None)
    return copy


def outcome_of(feature: Feature, origin: str, target: str, body: Body, plain: Body) -> str:
    """Return what became of a feature: kept, changed or dropped.

    Args:
        feature: The feature.
        origin: The format of the original.
        target: The format of the result.
        body: The result.
        plain: The result of the same without it.
    """
    own = feature.own.get(target)
    other = feature.other.get(f"{origin} -> {target}") or feature.other.get(target)
    assert not holds(plain, own), "its place holds the same without it"
    assert not holds(plain, other), "its other place holds the same without it"
    if holds(body, own):
        return "kept"
    if holds(body, other):
        return "changed"
    rest, none = (_without(each, feature.aside) for each in (body, plain))
    assert rest == none, f"it left a trace that nobody expects: {body}"
    return "dropped"
