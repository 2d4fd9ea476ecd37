"""What every setting is called, takes and means, read off the sections."""

from __future__ import annotations

import collections.abc
from decimal import Decimal
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args, get_origin

from pydantic_core import PydanticUndefined

from tollhouse.kernel.secret import Secret
from tollhouse.settings.problems import Location, dotted
from tollhouse.settings.section import Section
from tollhouse.settings.sections import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

ANY = "*"
"""Stands in a location for every position of a list."""

_TYPES: tuple[tuple[type, str], ...] = (
    (IPv4Network, "network"),
    (bool, "true or false"),
    (int, "whole number"),
    (float, "seconds"),
    (Decimal, "exact decimal"),
    (Path, "path"),
    (Secret, "secret text"),
    (str, "text"),
)

_COMPUTED_DEFAULTS: Mapping[Location, str] = {
    # The sections cannot hold these: they hang on other things.
    ("data_dir",): "the platform's data folder",
    ("providers", ANY, "name"): "the slug",
    ("providers", ANY, "base_url"): "none",
    ("providers", ANY, "head_seconds"): "upstream.head_seconds",
}


class Described(NamedTuple):
    """One setting, in words."""

    location: Location
    type: str
    default: str
    description: str

    @property
    def path(self) -> str:
        """The location as documents write it, for example `providers[].slug`."""
        return dotted(self.location).replace(f".{ANY}", "[]")

    @property
    def in_environment(self) -> bool:
        """Whether it has an environment name: everything outside of lists."""
        return ANY not in self.location


def described() -> Iterator[Described]:
    """Yield every setting, in the order of the sections."""
    yield from _section(Settings, ())


def names_at(location: Location) -> tuple[str, ...]:
    """Return the names that are valid inside of a location; none where it holds no section."""
    section: type[Section] | None = Settings
    for step in location:
        if section is None:
            return ()
        if isinstance(step, str):
            field = section.model_fields.get(step)
            section = _section_in(field.annotation) if field else None
    return tuple(section.model_fields) if section else ()


def _section(section: type[Section], above: Location) -> Iterator[Described]:
    for name, field in section.model_fields.items():
        location = (*above, name)
        inner = _section_in(field.annotation)
        if inner is not None and field.annotation is inner:
            yield from _section(inner, location)
            continue
        yield Described(
            location,
            _type_text(field.annotation),
            _default(location, field),
            field.description or "",
        )
        if inner is not None:
            is_list = get_origin(field.annotation) is tuple
            yield from _section(inner, (*location, ANY) if is_list else location)


def _section_in(annotation: object) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    found = (_section_in(part) for part in get_args(annotation))
    return next((section for section in found if section is not None), None)


def _type_text(annotation: object) -> str:
    parts = list(_parts(annotation))
    if get_origin(annotation) is tuple:
        inside = get_args(annotation)[0]
        return "list" if _section_in(inside) else f"list of {_type_text(inside)}"
    if get_origin(annotation) is collections.abc.Mapping:
        return "mapping of text to secret text"
    choices = [
        str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)
    ]
    if choices:
        return " or ".join(["mapping", *choices] if _section_in(annotation) else choices)
    return next(text for kind, text in _TYPES if kind in parts)


def _parts(annotation: object) -> Iterator[object]:
    yield annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _parts(part)


def _default(location: Location, field: FieldInfo) -> str:
    computed = _COMPUTED_DEFAULTS.get(location)
    if computed is not None:
        return computed
    if field.is_required():
        return "required"
    value = cast("object", field.get_default(call_default_factory=False))
    if value is None or value == () or value is PydanticUndefined:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
