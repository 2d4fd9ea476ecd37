"""What a request or a reply may have, and where it stands in each format.

    says    a client's (or a provider's) words for it
    own     where each format has it, and as what: there it was kept
    other   where it stands in another shape: there it was changed

Formats go by their names in the documentation: chat, responses, messages, completions. A place is a
path with dots, `messages.0.content`; all places of a format must hold what they are said to hold.
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
    """Of each format that can say it: the fields on top of the plainest body."""
    own: dict[str, Places] = field(default_factory=dict[str, Places])
    other: dict[str, Places] = field(default_factory=dict[str, Places])
    """By the format in which it ends, or by `from -> to` where that makes a difference."""
    beside: dict[str, Body] = field(default_factory=dict[str, Body])
    """Fields without which it makes no sense, on top of the plainest body, too."""
    aside: tuple[str, ...] = ()
    """Places that tell of it when it was dropped, without what it said."""
    covers: tuple[str, ...] = ()
    """The hub's fields that it is about: `Image.url`."""


@dataclass(frozen=True, kw_only=True)
class RequestFeature(Feature):
    parameter: str | None = None
    """Its name among `given_parameters`."""


@dataclass(frozen=True, kw_only=True)
class ReplyFeature(Feature):
    asks: dict[str, Body] = field(default_factory=dict[str, Body])
    """Of each client: fields of the request that is answered."""
    clients: tuple[str, ...] = ("chat", "responses", "messages", "completions")
    """The formats in which it can be asked for."""
    streams: dict[str, list[Body]] = field(default_factory=dict[str, list[Body]])
    """Events for what a whole reply cannot show."""
    whole: bool = True
    streamed: bool = True


def in_all(names: tuple[str, ...], places: Places) -> dict[str, Places]:
    """Return the same places for several formats."""
    return dict.fromkeys(names, places)


def found(body: Any, path: str) -> Any:
    """Return what stands at a path; MISSING where nothing does."""
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
    """Tell whether every place holds its value."""
    if not places:
        return False
    return all(found(body, path) == value for path, value in places.items())


def _without(body: Body, paths: tuple[str, ...]) -> Body:
    """Return a copy without what stands at some paths."""
    copy = deepcopy(body)
    for path in paths:
        above, _, name = path.rpartition(".")
        place = found(copy, above)
        if isinstance(place, dict):
            place.pop(name, None)
    return copy


def outcome_of(feature: Feature, origin: str, target: str, body: Body, plain: Body) -> str:
    """Return the word for what became of a feature.

    Args:
        feature: Which.
        origin: The format in which it was said.
        target: The format in which it ended.
        body: What came of it.
        plain: What comes of the same without it.
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
