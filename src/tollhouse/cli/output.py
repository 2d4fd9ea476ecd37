"""How results look: tables for people, tab-separated lines for pipes, JSON where it is asked for.

    Style(json=True)        JSON, as the API gave it
    Style(terminal=True)    aligned columns under a heading
    Style()                 one line each, fields separated by tabs, no heading

A command returns a `Listing` or a `Record`; it does not print, except what is too large for that.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from tollhouse.cli.failures import CommandFailed

Item = Mapping[str, Any]
NOTHING = "-"
GAP = "  "


@dataclass(frozen=True, slots=True)
class Style:
    """How to print."""

    json: bool = False
    terminal: bool = False
    width: int | None = None
    """Characters of a line on the terminal, where that is known."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a listing."""

    title: str
    value: Callable[[Item], object]
    short: Callable[[str], str] | None = None
    """What a person sees of a long value; pipes get all of it."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Things of one kind."""

    items: Sequence[Item]
    columns: Sequence[Column]
    note: str | None = None
    """A sentence for people only."""


@dataclass(frozen=True, slots=True)
class Record:
    """One thing."""

    item: Item
    fields: Sequence[str] | None = None
    """Which of its fields are worth a line; JSON has all of them. None for all."""
    note: str | None = None
    """A sentence for people only."""


@dataclass(frozen=True, slots=True)
class Report:
    """One thing that people see as something else than its fields: a list, or several tables."""

    item: Item
    """All of it, for JSON."""
    text: Listing | Record | Sequence[tuple[str, Listing | Record]]
    """What stands for it elsewhere; several parts have headings, which in a pipe are the first
    field of each of their lines."""
    exit_code: int = 0
    """How the command ends once it is printed."""


@dataclass(frozen=True, slots=True)
class Written:
    """What is too large to be returned: the command has written it itself."""

    note: str
    """A sentence for people only, on standard error; nothing unless there is something to say."""
    exit_code: int = 0
    """How the command ends."""


Shown = Listing | Record | Report | Written


def field(name: str, title: str | None = None) -> Column:
    """Return a column that shows a field as it is."""
    return Column(title or name, lambda item: item.get(name))


def style(*, as_json: bool) -> Style:
    """Return the style for this process's standard output."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    return Style(json=as_json, terminal=terminal, width=width)


def show(shown: Shown, how: Style) -> None:
    """Print a result; an empty list prints nothing to a pipe."""
    if isinstance(shown, Written):
        if shown.note and sys.stderr.isatty():
            print(shown.note, file=sys.stderr)
    elif text := rendered(shown, how):
        write(text)


def write(text: str, end: str = "\n") -> bool:
    """Print a text on standard output, at once.

    Returns:
        Whether anybody reads on: a reader that has enough is no failure.

    Raises:
        CommandFailed: The disk is full, say.
    """
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        give_up(error)
        return False
    return True


def give_up(error: OSError) -> None:
    """Write nothing more on standard output, which has failed; that nobody reads on is no failure.

    Raises:
        CommandFailed: The disk is full, say.
    """
    # What is left in the buffer would fail once more at the interpreter's end, and loudly.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        message = f"the output cannot be written ({error.strerror})"
        raise CommandFailed(message) from None


def visible(text: str) -> str:
    r"""Return a name so that two names never look alike: what cannot be printed, as `\x1b`."""
    return "".join(
        char if char.isprintable() and char != "\\" else ascii(char)[1:-1] for char in text
    )


def rendered(shown: Listing | Record | Report, how: Style) -> str:
    """Return a result as text, without the last line's end."""
    if isinstance(shown, Report):
        return _report(shown, how)
    if isinstance(shown, Record):
        return _record(shown, how)
    if how.json:
        return json.dumps(list(shown.items))
    return _listing(shown, how)


def text_of(value: object) -> str:
    """Return a value as one printable piece of a line.

    Names come from other people: a control character in one would let them write on the terminal.
    """
    match value:
        case None | "":
            text = NOTHING
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:.9f}".rstrip("0").rstrip(".")
        case str() | int():
            text = str(value)
        case _:
            text = json.dumps(value)
    return one_line(text)


def one_line(text: str) -> str:
    """Return a text whose unprintable characters are spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def _report(report: Report, how: Style) -> str:
    if how.json:
        return json.dumps(dict(report.item))
    if isinstance(report.text, Listing | Record):
        return rendered(report.text, how)
    parts = [(heading, rendered(part, how)) for heading, part in report.text]
    if how.terminal:
        return "\n\n".join(f"{heading}:\n{text}" for heading, text in parts)
    return "\n".join(f"{heading}\t{line}" for heading, text in parts for line in text.splitlines())


def _record(record: Record, how: Style) -> str:
    if how.json:
        return json.dumps(dict(record.item))
    names = list(record.item) if record.fields is None else record.fields
    fields = [[name, text_of(record.item.get(name))] for name in names]
    lines = _aligned(fields) if how.terminal else _tabbed(fields)
    if record.note and how.terminal:
        lines += ["", record.note]
    return "\n".join(lines)


def _listing(listing: Listing, how: Style) -> str:
    rows = [[_cell(column, item, how) for column in listing.columns] for item in listing.items]
    if not how.terminal:
        return "\n".join(_tabbed(rows))
    if not rows:
        return "none"
    table = [[column.title.upper() for column in listing.columns], *rows]
    shown = _columns_in(table, how.width)
    lines = _aligned([row[:shown] for row in table])
    notes = [listing.note] if listing.note else []
    if shown < len(listing.columns):
        rest = ", ".join(column.title for column in listing.columns[shown:])
        notes.append(f"No room here for: {rest}. A wider terminal, a pipe and --json have them.")
    return "\n".join([*lines, *(line for note in notes for line in ("", note))])


def _columns_in(table: Sequence[Sequence[str]], width: int | None) -> int:
    """Return how many columns fit into a line, the first in any case."""
    ends = accumulate(max(map(len, column)) + len(GAP) for column in zip(*table, strict=True))
    fitting = sum(1 for end in ends if width is None or end - len(GAP) <= width)
    return max(1, fitting)


def _cell(column: Column, item: Item, how: Style) -> str:
    text = text_of(column.value(item))
    return column.short(text) if column.short and how.terminal else text


def _tabbed(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["\t".join(row) for row in rows]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
