"""`tollhouse logs`: what the server of the data folder has logged."""

import os
import time
from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self, TextIO

import typer

from tollhouse.cli.client import data_dir_of
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.json_objects import parsed
from tollhouse.cli.options import Config, DataDir
from tollhouse.cli.output import one_line, write
from tollhouse.cli.target import Folder
from tollhouse.observability.log_file import log_files
from tollhouse.storage.data_folder import DataFolder

POLL_SECONDS = 0.25


class Level(StrEnum):
    """How severe a line is at least."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def logs(
    data_dir: DataDir = None,
    config: Config = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last ones.")
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones until Ctrl-C.")
    ] = False,
    level: Annotated[
        Level, typer.Option("--level", help="Only lines of this severity or more.")
    ] = Level.DEBUG,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the log of the data folder's server, also after it has ended; it needs no key."""
    path = DataFolder(data_dir_of(Folder(data_dir, config))).server_log
    if not (follow or log_files(path)):
        message = (
            f"there is no log in {path.parent}: `tollhouse serve` writes one there, "
            "unless logging.file_bytes is 0"
        )
        raise CommandFailed(message)
    with Log(path) as log:
        read_on = all(map(write, deque(log.shown(level, as_json=as_json), maxlen=lines)))
        while follow and read_on:
            time.sleep(POLL_SECONDS)
            read_on = all(map(write, log.shown(level, as_json=as_json)))


class Log:
    """A log that is read to its end, and on from there when it has grown."""

    def __init__(self, path: Path) -> None:
        """Begin with the oldest file."""
        self._path = path
        self._older = list(log_files(path))
        self._file: TextIO | None = None
        self._begun = ""
        """A line of which the end is missing yet."""

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def shown(self, level: Level, *, as_json: bool) -> Iterator[str]:
        """Return what is new of it, as it is shown to a person or a program."""
        from tollhouse.observability.request_log import text_line

        severities = list(Level)
        wanted = {"critical", *severities[severities.index(level) :]}
        for line in self._lines():
            facts = parsed(line)
            if facts.get("level") in wanted:
                yield line if as_json else one_line(text_line(facts))

    def _lines(self) -> Iterator[str]:
        while True:
            for piece in self._file or ():
                line, self._begun = self._begun + piece, ""
                if line.endswith("\n"):
                    yield line.rstrip("\n")
                else:
                    self._begun = line
            if not self._open_next():
                return

    def _open_next(self) -> bool:
        """Open the file that follows the one that is read; tell whether there is one."""
        following = self._older.pop(0) if self._older else self._path
        try:
            file = following.open(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return False
        if self._file is not None:
            if os.path.sameopenfile(file.fileno(), self._file.fileno()):
                file.close()
                return False
            self._file.close()
        self._file = file
        return True
