"""How results look: tables for people, tab-separated lines for pipes, JSON where it is asked for.

    OutputStyle(json=True)        JSON, as the API gave it
    OutputStyle(terminal=True)    aligned columns under a heading
    OutputStyle()                 one line each, fields separated by tabs, no heading

A command returns a `Table` or a `Record`. Only what is too large for that, such as the results of a
batch, it writes itself with `open_output`.
"""

import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final

from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.values import one_line
from tollhouse.kernel.errors import StartError

Item = Mapping[str, Any]
LineWriter = Callable[[str], bool]
"""Takes lines; tells whether anybody wants more."""
NOTHING = "-"
GAP = "  "
STANDARD_OUTPUT: Final = "-"


@dataclass(frozen=True, slots=True)
class OutputStyle:
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
class Table:
    """Things of one kind."""

    items: Sequence[Item]
    columns: Sequence[Column | str]
    """A name stands for the field of that name, shown as it is."""
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
    text: Table | Record | Sequence[tuple[str, Table | Record]]
    """What stands for it elsewhere; several parts have headings, which in a pipe are the first
    field of each of their lines."""
    exit_code: int = 0
    """How the command ends once it is printed."""


@dataclass(frozen=True, slots=True)
class AlreadyWritten:
    """What is too large to be returned: the command has written it itself."""

    note: str
    """A sentence for people only, on standard error; nothing unless there is something to say."""
    exit_code: int = 0
    """How the command ends."""


CommandResult = Table | Record | Report | AlreadyWritten


def column(name: str, title: str | None = None) -> Column:
    """Return a column that shows a field as it is."""
    return Column(title or name, lambda item: item.get(name))


def print_result(shown: CommandResult, *, as_json: bool) -> None:
    """Print a result; an empty list prints nothing to a pipe."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    if isinstance(shown, AlreadyWritten):
        if shown.note and sys.stderr.isatty():
            print(shown.note, file=sys.stderr)
    elif text := render(shown, OutputStyle(as_json, terminal, width)):
        write(text)


def write(text: str, end: str = "\n") -> bool:
    """Print a text on standard output, at once; tell whether anybody reads on.

    A reader that has enough is no failure; CommandFailed where the disk is full, say.
    """
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        handle_output_error(error)
        return False
    return True


def handle_output_error(error: OSError) -> None:
    """Write nothing more on standard output, which has failed, and raise CommandFailed.

    That nobody reads on is no failure.
    """
    # What is left in the buffer would fail once more at the interpreter's end, and loudly.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        raise CommandFailed(f"the output cannot be written ({error.strerror})") from None


def render(shown: Table | Record | Report, how: OutputStyle) -> str:
    """Return a result as text, without the last line's end."""
    if how.json:
        return json.dumps(list(shown.items) if isinstance(shown, Table) else dict(shown.item))
    match shown:
        case Report():
            return _render_report(shown, how)
        case Record():
            return _render_record(shown, how)
        case Table():
            return _render_table(shown, how)


def format_value(value: object) -> str:
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


def _render_report(report: Report, how: OutputStyle) -> str:
    if isinstance(report.text, Table | Record):
        return render(report.text, how)
    parts = [(heading, render(part, how)) for heading, part in report.text]
    if how.terminal:
        return "\n\n".join(f"{heading}:\n{text}" for heading, text in parts)
    return "\n".join(f"{heading}\t{line}" for heading, text in parts for line in text.splitlines())


def _render_record(record: Record, how: OutputStyle) -> str:
    names = list(record.item) if record.fields is None else record.fields
    fields = [[name, format_value(record.item.get(name))] for name in names]
    lines = _aligned(fields) if how.terminal else _tabbed(fields)
    if record.note and how.terminal:
        lines += ["", record.note]
    return "\n".join(lines)


def _render_table(listing: Table, how: OutputStyle) -> str:
    columns = [column(each) if isinstance(each, str) else each for each in listing.columns]
    rows = [[_cell(each, item, how) for each in columns] for item in listing.items]
    if not how.terminal:
        return "\n".join(_tabbed(rows))
    if not rows:
        return "none"
    table = [[each.title.upper() for each in columns], *rows]
    shown = _columns_in(table, how.width)
    lines = _aligned([row[:shown] for row in table])
    notes = [listing.note] if listing.note else []
    if shown < len(columns):
        rest = ", ".join(each.title for each in columns[shown:])
        notes.append(f"No room here for: {rest}. A wider terminal, a pipe and --json have them.")
    return "\n".join([*lines, *(line for note in notes for line in ("", note))])


def _columns_in(table: Sequence[Sequence[str]], width: int | None) -> int:
    """Return how many columns fit into a line, the first in any case."""
    ends = accumulate(max(map(len, column)) + len(GAP) for column in zip(*table, strict=True))
    fitting = sum(1 for end in ends if width is None or end - len(GAP) <= width)
    return max(1, fitting)


def _cell(column: Column, item: Item, how: OutputStyle) -> str:
    text = format_value(column.value(item))
    return column.short(text) if column.short and how.terminal else text


def _tabbed(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["\t".join(row) for row in rows]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


@contextmanager
def open_output(file: str | None, *, force: bool) -> Generator[LineWriter]:
    """Open what lines are written to: standard output for None or `-`, or a file once it is whole.

    StartError where the file is there already, without `force`; CommandFailed where the disk is
    full, say.
    """
    if file in {None, STANDARD_OUTPUT}:
        # JSON is UTF-8, whatever the terminal's encoding is.
        stream: object = sys.stdout
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        yield lambda lines: write(lines, end="")
        return
    path = Path(str(file))
    refuse_existing(path, force=force)
    try:
        with (
            write_atomically(path) as part,
            io.TextIOWrapper(part, encoding="utf-8", newline="\n") as text,
        ):
            yield lambda lines: bool(text.write(lines))
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written ({error.strerror})") from None


def refuse_existing(path: Path, *, force: bool) -> None:
    """Raise StartError if a path is a folder, or a file that may not be replaced."""
    if path.is_dir():
        raise StartError(f"{path} is a folder: name a file in it")
    if path.is_file() and not force:
        raise StartError(
            f"{path} is there already: choose another name, or replace it with --force"
        )


@contextmanager
def write_atomically(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Open a file that has a name of its own until the block ends well; then it takes its place.

    What is no file, a pipe or a device, is written as it is, and stays what it is. A link leads to
    its file. A new file gets the mode, less the umask.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    if path.exists() and not path.is_file():
        with path.open("wb") as special:
            yield special
        return
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    with open(part, "xb", opener=opener) as file:
        try:
            yield file
            file.close()
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
