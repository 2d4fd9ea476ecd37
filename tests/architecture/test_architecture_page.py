"""`docs/architecture.md` names what exists: files, classes, functions and layers."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tollhouse"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PICTURE = PAGE.partition("```text\n")[2].partition("```")[0]
NAMED = set(re.findall(r"`([\w/]+\.py): ([\w.]+)`", PAGE))
PATHS = set(re.findall(r"`([\w/]+(?:/|\.py))[`:]", PAGE)) - {"src/tollhouse/"}
DRAWN = set(re.findall(r"\b[A-Z][a-z]\w+", PICTURE))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (ast.ClassDef, *FUNCTIONS)


def names_in(file: Path) -> set[str]:
    """Return a module's classes and functions, and their methods as `Class.method`."""
    top = [node for node in ast.parse(file.read_text()).body if isinstance(node, DEFINITIONS)]
    methods = {
        f"{node.name}.{each.name}"
        for node in top
        for each in node.body
        if isinstance(each, FUNCTIONS)
    }
    return {node.name for node in top} | methods


def test_every_named_class_and_function_exists() -> None:
    assert NAMED
    assert [each for each in sorted(NAMED) if each[1] not in names_in(SOURCE / each[0])] == []


def test_every_path_exists() -> None:
    assert PATHS
    assert [path for path in sorted(PATHS) if not (SOURCE / path).exists()] == []


def test_the_classes_of_the_picture_are_those_of_the_steps() -> None:
    assert DRAWN
    assert sorted(DRAWN - {name.partition(".")[0] for _, name in NAMED}) == []


def test_the_picture_has_the_layers_of_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["tollhouse"]]
    heading, *drawn = re.findall(r"^ ([a-z_]+(?: \| [a-z]+)*)  ", PICTURE, re.MULTILINE)
    assert (heading, drawn) == ("layer", layers)
