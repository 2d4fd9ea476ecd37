"""Every command teaches: its help has a purpose and examples, and the guide has all of it.

A failure lists what is missing in `docs/reference/command-line.md`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tollhouse.cli.program import app

GUIDE = (Path(__file__).parents[3] / "docs" / "reference" / "command-line.md").read_text("utf-8")
COMMON = {"--help", "--json", "--data-dir", "--config", "--base-url", "--api-key"}
"""Options of many commands; the guide explains them once."""


def commands(group: Any, path: tuple[str, ...] = ("tollhouse",)) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        here = (*path, name)
        if command.hidden:  # what our own processes start each other with
            continue
        if hasattr(command, "commands"):
            yield from commands(command, here)
        if getattr(command, "invoke_without_command", True):
            yield " ".join(here), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name.endswith(" delete")])
def test_a_command_that_deletes_asks_first(name: str) -> None:
    assert "--yes" in options(COMMANDS[name])


def options(command: Any) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    }


def section(name: str) -> str:
    found = re.search(rf"^### `{name}[^`]*`\n(.*?)(?=^#|\Z)", GUIDE, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def test_there_are_commands() -> None:
    assert {"tollhouse serve", "tollhouse keys create", "tollhouse config env"} <= COMMANDS.keys()


def test_the_guide_has_a_section_for_every_command() -> None:
    assert [name for name in COMMANDS if not section(name)] == []


def test_the_guide_has_no_section_about_a_command_that_does_not_exist() -> None:
    headings = re.findall(r"^### `(tollhouse[^`]*)`", GUIDE, re.MULTILINE)
    assert [each for each in headings if not any(each.startswith(name) for name in COMMANDS)] == []
    assert len(headings) == len(COMMANDS)


def test_the_guide_names_every_option_where_it_belongs() -> None:
    missing = {
        name: sorted(lacking)
        for name, command in COMMANDS.items()
        if (lacking := {o for o in options(command) - COMMON if o not in section(name)})
    }
    assert missing == {}


def test_the_guide_explains_the_common_options() -> None:
    assert [name for name in COMMON if f"`{name}" not in GUIDE] == []


def test_json_is_everywhere() -> None:
    without = [name for name, command in COMMANDS.items() if "--json" not in options(command)]
    assert without == ["tollhouse egress run"]  # what is printed is the program's own


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_a_purpose_and_examples_that_parse(name: str) -> None:
    command = COMMANDS[name]
    purpose = command.help.splitlines()[0]
    assert purpose.endswith(".")
    lines = [line.strip() for line in command.epilog.splitlines()[2:]]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" | ")[0])
        words = [word for word in words if not re.match(r"[A-Z_]+=", word)]
        assert " ".join(words).startswith(name)
        given = words[len(name.split()) :]
        given = given[: given.index("--")] if "--" in given else given
        assert {word for word in given if word.startswith("--")} <= options(command)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_says_what_it_is(name: str) -> None:
    assert [each.name for each in COMMANDS[name].params if not getattr(each, "help", None)] == []
