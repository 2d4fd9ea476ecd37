"""Where many lines are written to: standard output, or a file that is there once it is whole."""

from __future__ import annotations

import io
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.output import write
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Sink = Callable[[str], bool]
    """Takes lines; tells whether anybody wants more."""

STANDARD_OUTPUT: Final = "-"


@contextmanager
def opened(file: str | None, *, force: bool) -> Generator[Sink]:
    """Open what lines are written to.

    Args:
        file: Its path; None or `-` for standard output. What is an ordinary file is there only once
            it is whole.
        force: Whether it may be there already.

    Raises:
        StartError: It is there already, or cannot be written.
        CommandFailed: The disk is full, say.
    """
    if file in {None, STANDARD_OUTPUT}:
        # JSON is UTF-8, whatever the terminal's encoding is.
        stream: object = sys.stdout
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
        yield lambda lines: write(lines, end="")
        return
    path = Path(str(file))
    _refuse_what_is_there(path, force=force)
    try:
        with _written(path) as sink:
            yield sink
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror})"
        raise CommandFailed(message) from None


def _refuse_what_is_there(path: Path, *, force: bool) -> None:
    if path.is_dir():
        message = f"{path} is a folder: name a file in it"
        raise StartError(message)
    if path.is_file() and not force:
        message = f"{path} is there already: choose another name, or replace it with --force"
        raise StartError(message)


@contextmanager
def _written(path: Path) -> Generator[Sink]:
    """Write a file under a name of its own until it is whole; what is no file, as it is."""
    is_special = path.exists() and not path.is_file()
    target = path.resolve() if path.is_symlink() else path
    part = path if is_special else target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            yield lambda lines: bool(stream.write(lines))
        if not is_special:
            part.replace(target)
    except BaseException:
        if not is_special:
            part.unlink(missing_ok=True)
        raise
