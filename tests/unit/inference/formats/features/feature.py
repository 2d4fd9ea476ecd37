"""A feature of requests or replies, and its place in each format.

    says    the fields by which a client (or a provider) expresses it
    own     its place and value in each format: there it is kept
    other   its place in another form: there it is changed

Formats go by their names in the documentation: chat, responses, messages, completions. A place is a
path with dots, `messages.0.content`; all places of a format must hold the given values.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Places = dict[str, Any]
Body = dict[str, Any]
MISSING = object()
MARK = "marker"


@dataclass(frozen=True, kw_only=True)
class Feature:
    says: dict[str, Body]
    """By format: the fields that express it, added to a minimal body."""
    own: dict[str, Places] = field(default_factory=dict[str, Places])
    other: dict[str, Places] = field(default_factory=dict[str, Places])
    """By target format, or by `from -> to` if the origin matters."""
    beside: dict[str, Body] = field(default_factory=dict[str, Body])
    """Fields that it requires, also added to a minimal body."""
    aside: tuple[str, ...] = ()
    """Places that remain when it is dropped."""
    covers: tuple[str, ...] = ()
    """The canonical fields that it covers: `ImageBlock.url`."""


@dataclass(frozen=True, kw_only=True)
class RequestFeature(Feature):
    parameter: str | None = None
    """Its name among `given_parameters`."""


@dataclass(frozen=True, kw_only=True)
class ReplyFeature(Feature):
    asks: dict[str, Body] = field(default_factory=dict[str, Body])
    """By client format: fields of the request."""
    clients: tuple[str, ...] = ("chat", "responses", "messages", "completions")
    """The client formats that can request it."""
    streams: dict[str, list[Body]] = field(default_factory=dict[str, list[Body]])
    """Stream events, if they cannot be derived from a complete reply."""
    whole: bool = True
    streamed: bool = True


def in_all(names: tuple[str, ...], places: Places) -> dict[str, Places]:
    """Return the same places for several formats."""
    return dict.fromkeys(names, places)


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
