"""Reads the settings once, at the start: flags before environment before file before defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import platformdirs
from pydantic import ValidationError

from tollhouse.settings.description import names_at
from tollhouse.settings.environment import (
    CONFIG,
    DATA_DIR,
    Override,
    providers_of_keys,
    read_environment,
)
from tollhouse.settings.fields import InvalidValue
from tollhouse.settings.problems import (
    ConfigError,
    Location,
    Problem,
    dotted,
    find_inconsistencies,
    nearest,
)
from tollhouse.settings.sections import INCONSISTENT, PRICING_SHAPES, Settings
from tollhouse.settings.source import Document, read_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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
_FOLLOWS_FROM_ANOTHER = frozenset(("default_factory_not_called", INCONSISTENT))


def validate(tree: Mapping[str, object]) -> Settings | list[Problem]:
    """Return the settings that plain data means, or all that is wrong with it.

    The library's errors become sentences of ours: they name the setting and what it takes, never
    what was given.
    """
    problems = find_inconsistencies(tree)
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
    invalid = facts.get("error")
    if isinstance(invalid, InvalidValue):
        return str(invalid)
    if kind in _SENTENCES:
        return _SENTENCES[kind].format_map(facts)
    # The library's own sentences do not repeat what was given.
    return detail["msg"]


def _nearest_to(location: Location) -> str:
    near = nearest(str(location[-1]), names_at(location[:-1]))
    return f"; the nearest is {near!r}" if near else ""


CONFIG_FILE = "tollhouse.yaml"
"""The configuration file's name in the data folder."""

_FLAGS: Mapping[str, Location] = {
    "host": ("server", "host"),
    "port": ("server", "port"),
    "workers": ("server", "workers"),
    "data_dir": ("data_dir",),
    "database_url": ("database_url",),
    "log_level": ("logging", "level"),
    "log_format": ("logging", "format"),
}
"""What a command line may override, and the setting it means."""


def load(
    *,
    config: Path | None,
    env: Mapping[str, str],
    overrides: Mapping[str, object],
    cwd: Path | None = None,
) -> Settings:
    """Read the settings; nothing is created.

    `config` is the file that the command line names, None to look for one; `overrides` is what it
    sets, by the names of `_FLAGS`. Relative paths of flags and environment start at `cwd`.

    Raises:
        ConfigError: Something is wrong; its text names every problem, one a line.
    """
    here = cwd or Path.cwd()
    explicit = _as_path(overrides.get("data_dir"))
    path = config_file(config, env, data_folder(env, explicit, here), here)
    document = read_document(path, env) if path else Document()
    environment = read_environment(env, document.variables)
    given = [*environment.overrides, *_flags(overrides)]
    tree = _merged(document.tree, given)
    if tree.get("data_dir") is None or _as_path(tree["data_dir"]):
        tree["data_dir"] = data_folder(env, explicit, here, _written_folder(document, path))
    if not tree.get("providers") and not tree.get("models"):
        tree["providers"] = providers_of_keys(env)
    result = validate(tree)
    problems = [] if isinstance(result, Settings) else result
    lines = [
        *_lines(
            (*document.problems, *_not_following(problems, document.problems)),
            given,
            path,
            document.lines,
        ),
        *environment.problems,
    ]
    if isinstance(result, Settings) and not lines:
        return result
    raise ConfigError(lines)


def locate(
    *, config: Path | None, env: Mapping[str, str], data_dir: Path | None, cwd: Path | None = None
) -> Path:
    """Return the data folder that `load` would find, whatever else may be wrong with the settings.

    Who talks to a server that runs needs no other setting, nor the variables that the file refers
    to: those of the server's shell may be missing in another one.

    Raises:
        ConfigError: The path leads nowhere.
    """
    here = cwd or Path.cwd()
    path = config_file(config, env, data_folder(env, data_dir, here), here)
    try:
        document = read_document(path, env) if path else Document()
    except ConfigError:  # told by whoever needs the rest
        document = Document()
    return data_folder(env, data_dir, here, _written_folder(document, path))


def config_file(
    config: Path | None, env: Mapping[str, str], folder: Path, cwd: Path
) -> Path | None:
    """Return the configuration file to read: flag, else TOLLHOUSE_CONFIG, else in the data folder.

    That folder is the one that flag, environment or default name: where the file says otherwise is
    not known yet. A path that was named is returned whether or not it exists.
    """
    named = config or _as_path(env.get(CONFIG))
    if named is not None:
        return cwd / _at_home(named)
    found = folder / CONFIG_FILE
    # Unlike Path.exists, this one does not raise where the folder may not be entered; whoever
    # locks the folder says so better.
    return found if os.path.lexists(found) else None


def data_folder(
    env: Mapping[str, str], explicit: Path | None, cwd: Path, written: Path | None = None
) -> Path:
    """Return the data folder: flag, else TOLLHOUSE_DATA_DIR, else the file's, else the platform's.

    The path is absolute; nothing is created.

    Raises:
        ConfigError: The path leads nowhere, for example through a loop of links.
    """
    chosen = explicit or _as_path(env.get(DATA_DIR)) or written
    if chosen is None:
        chosen = platformdirs.user_data_path("tollhouse", appauthor=False)
    try:
        return (cwd / _at_home(chosen)).resolve()
    except (OSError, RuntimeError, ValueError):
        line = f"the data folder {str(chosen)!r} is not a usable path: choose one with --data-dir"
        raise ConfigError([line]) from None


def _as_path(value: object) -> Path | None:
    return Path(value) if isinstance(value, str | Path) and str(value).strip() else None


def _at_home(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # no such user
        return path


def _written_folder(document: Document, path: Path | None) -> Path | None:
    written = _as_path(document.tree.get("data_dir"))
    return path.parent / _at_home(written) if path and written else None


def _flags(overrides: Mapping[str, object]) -> list[Override]:
    return [
        Override(f"--{name.replace('_', '-')}", _FLAGS[name], value)
        for name, value in overrides.items()
        if value is not None
    ]


def _merged(tree: Mapping[str, object], given: Iterable[Override]) -> dict[str, object]:
    merged = dict(tree)
    for _, location, value in given:
        first, *rest = location
        if not rest:
            merged[str(first)] = value
            continue
        section = merged.get(str(first))
        # A section that is no mapping stays: it is a mistake of the file, and reported as one.
        if section is None or isinstance(section, dict):
            fields = cast("dict[str, object]", section or {})
            merged[str(first)] = {**fields, str(rest[0]): value}
    return merged


def _not_following(problems: Iterable[Problem], earlier: Iterable[Problem]) -> list[Problem]:
    """Leave out what is wrong only because a `${VAR}` at the same place could not be replaced."""
    broken = {problem.location for problem in earlier}
    return [problem for problem in problems if problem.location not in broken]


def _lines(
    problems: Iterable[Problem],
    given: Iterable[Override],
    path: Path | None,
    numbers: Mapping[Location, int],
) -> Iterator[str]:
    names = {location: name for name, location, _ in given}
    for problem in problems:
        place = _place(problem.location, names)
        if place is None:
            file = f"{path}{_line_number(problem.location, numbers)}" if path else None
            place = ": ".join(part for part in (file, problem.path) if part)
        yield f"{place}: {problem.message}"


def _line_number(location: Location, numbers: Mapping[Location, int]) -> str:
    """Return `:12` for what begins in line 12; of what is not written, the line of its section."""
    for length in range(len(location), 0, -1):
        number = numbers.get(location[:length])
        if number is not None:
            return f":{number}"
    return ""


def _place(location: Location, names: Mapping[Location, str]) -> str | None:
    """Return the flag or variable that set a location, and the way on from there."""
    for length in range(len(location), 0, -1):
        name = names.get(location[:length])
        if name is not None:
            return dotted((name, *location[length:]))
    return None
