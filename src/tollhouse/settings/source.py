"""The configuration file: YAML, with `${VAR}` references to the environment.

    text ──▶ _Loader (duplicate keys, lines and columns) ──▶ _expand (references) ──▶ Document

Knows nothing of which settings exist. Problems that leave the rest readable are collected;
a file that cannot be read at all is a `ConfigError` at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import yaml
from yaml.reader import ReaderError

from tollhouse.settings.problems import ConfigError, Location, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_MERGE_TAG = "tag:yaml.org,2002:merge"
_TEXT_TAG = "tag:yaml.org,2002:str"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"

_REFERENCE = re.compile(
    r"\$\$\{"  # an escaped one
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|(?P<broken>\$\{)"
)
# What the YAML library quotes may be a piece of a value. Single characters and the names of its
# own tokens are not.
_QUOTED_VALUE = re.compile(r" '(?!\\?.'|<[^']*>')[^']*'")


@dataclass(frozen=True, slots=True)
class Document:
    """What a configuration file says."""

    tree: dict[str, object] = field(default_factory=dict[str, object])
    """The settings as plain data, references replaced."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the file itself; the tree holds the rest."""
    variables: frozenset[str] = frozenset()
    """Names of the environment that the file refers to."""
    lines: Mapping[Location, int] = field(default_factory=dict[Location, int])
    """The line, from 1, at which each setting and each entry of a list begins."""


def read_document(path: Path, env: Mapping[str, str]) -> Document:
    """Read a configuration file, whose `${VAR}` refer to an environment.

    Raises:
        ConfigError: The file cannot be read, or is no YAML mapping. One line.
    """
    text = _text_of(path)
    try:
        loader = _Loader(text)
        tree = cast("object", loader.get_single_data())
        if tree is not None and not isinstance(tree, dict):
            raise ConfigError([f"{path}: must be a mapping of names to values at its top level"])
        expansion = _Expansion(env, loader.problems)
        expanded = expansion.expand(cast("object", tree or {}), ())
        # After construction: by then merge keys are mixed in.
        lines = dict(_line_numbers(loader.root, ()))
    except yaml.MarkedYAMLError as error:
        raise ConfigError([f"{path}: {_yaml_problem(error)}"]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError([f"{path}: line {line}: holds a control character"]) from None
    except ValueError:
        # The library's own text would show the value.
        raise ConfigError([f"{path}: holds a value that YAML cannot read"]) from None
    except RecursionError:
        raise ConfigError([f"{path}: is nested too deeply, or contains itself"]) from None
    return Document(
        cast("dict[str, object]", expanded),
        tuple(expansion.problems),
        frozenset(expansion.variables),
        lines,
    )


def _line_numbers(node: yaml.Node | None, location: Location) -> Iterator[tuple[Location, int]]:
    """Yield each location in a node with the line of its name, or of its first character."""
    inside: list[tuple[str | int, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inside = [(name.value, name, value) for name, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inside = [(at, value, value) for at, value in enumerate(node.value)]
    for step, start, value in inside:
        yield (*location, step), start.start_mark.line + 1
        yield from _line_numbers(value, (*location, step))


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise ConfigError([f"{path}: the config file cannot be read: {reason}"]) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text (at byte {error.start})"]) from None


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = error.problem or "is not valid YAML"
    if problem.startswith("but "):  # the sentence has begun in the context
        problem = f"{error.context}, {problem}"
    return place + _QUOTED_VALUE.sub("", problem)


class _Loader(yaml.SafeLoader):
    """The safe loader; it reports keys that stand twice, and leaves dates as text."""

    # 2026-01-01 is somebody's model name, not a date.
    yaml_implicit_resolvers = {  # noqa: RUF012  (the library's own attribute)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.problems: list[Problem] = []
        self.root: yaml.Node | None = None

    def compose_document(self) -> yaml.Node | None:
        self.root = super().compose_document()
        return self.root

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401  (as in the library)
        # Here and not when the mapping is built: by then merge keys are mixed in.
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                self._check_key(key, first)
        return node

    def _check_key(self, key: yaml.ScalarNode, first: dict[str, int]) -> None:
        line, column = key.start_mark.line + 1, key.start_mark.column + 1
        place = f"line {line}, column {column}: "
        if key.tag == _MERGE_TAG:
            return
        if key.tag != _TEXT_TAG:
            self.problems.append(Problem((), f"{place}the key is not text; put it in quotes"))
        elif key.value in first:
            earlier = first[key.value]
            message = f"{place}{key.value!r} is there twice, first in line {earlier}"
            self.problems.append(Problem((), message))
        first.setdefault(key.value, line)


class _Expansion:
    """Replaces `${VAR}` in all texts of a tree, and remembers what it met."""

    def __init__(self, env: Mapping[str, str], problems: list[Problem]) -> None:
        self._env = env
        self.problems = list(problems)
        self.variables: set[str] = set()

    def expand(self, value: object, location: Location) -> object:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._replacement(found, location), value)
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self.expand(item, (*location, at)) for at, item in enumerate(items)]
        if isinstance(value, dict):
            fields = cast("dict[object, object]", value)
            return {
                name: self.expand(item, (*location, name))
                for name, item in fields.items()
                if isinstance(name, str)  # others are reported already
            }
        return value

    def _replacement(self, found: re.Match[str], location: Location) -> str:
        if found["broken"]:
            message = (
                "holds a broken reference; write ${NAME}, ${NAME:-default}, or $${ for a plain ${"
            )
            self.problems.append(Problem(location, message))
            return ""
        name, default = found["name"], found["default"]
        if name is None:
            return "${"
        self.variables.add(name)
        value = self._env.get(name)
        # As in a shell: `:-` also stands in for an empty one.
        if default is not None:
            return value or default
        if value is None:
            message = f"refers to the environment variable {name}, which is not set"
            self.problems.append(Problem(location, message))
            return ""
        return value
