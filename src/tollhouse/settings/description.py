"""The settings for people: what each is called, takes and means, and what they are set to."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import re
from decimal import Decimal
from functools import cache
from ipaddress import IPv4Network
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args, get_origin
from urllib.parse import urlsplit

from pydantic_core import PydanticUndefined

from tollhouse.kernel.secret import Secret
from tollhouse.settings.fields import Section
from tollhouse.settings.problems import Location, dotted
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
    section: type[Section]

    @property
    def description(self) -> str:
        """The field's docstring, as one line."""
        return _descriptions(self.section).get(str(self.location[-1]), "")

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
        yield Described(location, _type_text(field.annotation), _default(location, field), section)
        if inner is not None:
            is_list = get_origin(field.annotation) is tuple
            yield from _section(inner, (*location, ANY) if is_list else location)


@cache
def _descriptions(section: type[Section]) -> dict[str, str]:
    # Read from the source when they are shown; pydantic would do so at every start, which costs
    # 20 ms.
    [definition] = ast.parse(inspect.getsource(section)).body
    statements = cast("ast.ClassDef", definition).body
    return {
        field.target.id: " ".join(text.split())
        for field, docstring in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant)
        if isinstance(text := docstring.value.value, str)
    }


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
        others = (
            ["mapping"] if _section_in(annotation) else ["whole number"] if int in parts else []
        )
        return " or ".join([*others, *choices])
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


_PASSWORD = re.compile(r"(?<=://)([^:@/?#]*):.*@")
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*", re.IGNORECASE)


def masked(settings: Settings) -> dict[str, object]:
    """Return the settings as JSON-able data in which no secret stands.

    API keys and header values are masked whole; of the database's address the password, of a
    proxy's address the user and password.
    """
    shown = cast("dict[str, object]", settings.model_dump(mode="json"))
    if settings.database_url is not None:
        shown["database_url"] = _without_password(settings.database_url)
    providers = cast("list[dict[str, object]]", shown["providers"])
    for entry, provider in zip(providers, settings.providers, strict=True):
        if provider.proxy is not None:
            entry["proxy"] = _without_user(provider.proxy)
    return shown


def flat(settings: Settings) -> dict[str, object]:
    """Return the settings as `masked` does, each value by its name: `limits.kind`, `models.a/b.id`.

    Entries of a list go by their `slug`, `id` or `name`, or by their number.
    """
    return dict(_flat("", masked(settings)))


def _flat(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, list):
        entries = cast("list[object]", value)
        if entries and all(isinstance(each, dict) for each in entries):
            labelled = enumerate(cast("list[dict[str, object]]", entries))
            value = {_label(each, at): each for at, each in labelled}
    if isinstance(value, dict):
        for part, each in cast("dict[str, object]", value).items():
            yield from _flat(f"{name}.{part}" if name else part, each)
    else:
        yield name, value


def _label(entry: dict[str, object], at: int) -> str:
    named = (entry[key] for key in ("slug", "id", "name") if key in entry)
    return str(next(named, at))


def _without_password(url: Secret) -> str:
    # Up to the last @, since an unquoted password may hold one.
    text = _PASSWORD.sub(rf"\1:{Secret.MASK}@", url.reveal())
    return _SECRET_PARAMETER.sub(rf"\1{Secret.MASK}", text)


def _without_user(url: Secret) -> str:
    parts = urlsplit(url.reveal())
    user, found, host = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{Secret.MASK if user else ''}{found}{host}"
