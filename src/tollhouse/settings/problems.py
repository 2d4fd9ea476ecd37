"""What can be wrong with the settings, and the checks across their sections."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from tollhouse.kernel.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping


class ConfigError(StartError):
    """The configuration is wrong; every problem is a line of the text.

    No line holds a value that was given for a setting.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


Location = tuple[str | int, ...]
"""The way to a setting from the root: names of keys, positions in lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and where. Never holds a value that was given for a setting."""

    location: Location
    message: str
    """Reads on from the path: "must be a number"."""

    @property
    def path(self) -> str:
        """The location as a person writes it."""
        return dotted(self.location)


def dotted(location: Location) -> str:
    """Return a location as a person writes it, for example `models[0].endpoints[1].pricing`."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def nearest(name: str, valid: Collection[str]) -> str | None:
    """Return the most similar of the valid names; None only where there is no valid name."""
    found = difflib.get_close_matches(name, sorted(valid), n=1, cutoff=0.0)
    return found[0] if found else None


SIMULATED = "simulated"
"""Slug and kind of the built-in provider."""
_OFF = frozenset(("false", "no", "off", "0", "f", "n"))
"""What pydantic takes for false, in small letters."""


class _Named(NamedTuple):
    location: Location
    """Of the field that holds the name."""
    name: str
    entry: Mapping[str, object]


def find_inconsistencies(tree: Mapping[str, object]) -> list[Problem]:
    """Return names that are used twice, and providers that are named but do not exist.

    Works on plain data, so that these problems are reported together with the others, also where
    something else is wrong with the same provider or model. A wrong shape is passed over.
    """
    guardrails = list(_named(tree, (), "guardrails", "slug"))
    providers = list(_named(tree, (), "providers", "slug"))
    models = list(_named(tree, (), "models", "id"))
    names = [*models, *(alias for model in models for alias in _aliases(model))]
    repeated = [each for named in (guardrails, providers, names) for each in _repeated(named)]
    return [*repeated, *_unknown_providers(tree, providers, models)]


def adds_simulated(providers: Iterable[tuple[object, object]]) -> bool:
    """Tell whether the simulated provider joins those that are listed, each by its slug and kind.

    One of that kind is there already; one that has the slug keeps it.
    """
    return all(SIMULATED not in (slug, kind) for slug, kind in providers)


def _named(
    parent: Mapping[str, object], above: Location, list_name: str, name_field: str
) -> Iterator[_Named]:
    entries = parent.get(list_name)
    if not isinstance(entries, list | tuple):
        return
    for position, entry in enumerate(cast("Iterable[object]", entries)):
        if isinstance(entry, dict):
            fields = cast("dict[str, object]", entry)
            name = fields.get(name_field)
            if isinstance(name, str):
                yield _Named((*above, list_name, position, name_field), name, fields)


def _aliases(model: _Named) -> Iterator[_Named]:
    aliases = model.entry.get("aliases")
    for position, alias in enumerate(cast("Iterable[object]", aliases or ())):
        if isinstance(alias, str):
            yield _Named((*model.location[:-1], "aliases", position), alias, {})


def _repeated(entries: list[_Named]) -> Iterator[Problem]:
    first: dict[str, Location] = {}
    for entry in entries:
        if entry.name in first:
            earlier = dotted(first[entry.name])
            yield Problem(entry.location, f"{entry.name!r} is taken already, by {earlier}")
        first.setdefault(entry.name, entry.location)


def _unknown_providers(
    tree: Mapping[str, object], providers: list[_Named], models: list[_Named]
) -> Iterator[Problem]:
    slugs = {provider.name for provider in providers}
    switched_off = str(tree.get("simulated_models", True)).strip().lower() in _OFF
    if not switched_off and adds_simulated(
        (each.name, each.entry.get("kind")) for each in providers
    ):
        slugs.add(SIMULATED)
    for model in models:
        for endpoint in _named(model.entry, model.location[:-1], "endpoints", "provider"):
            if endpoint.name not in slugs:
                near = nearest(endpoint.name, slugs)
                hint = f"; the nearest is {near!r}" if near else ""
                yield Problem(endpoint.location, f"no provider is called {endpoint.name!r}{hint}")
