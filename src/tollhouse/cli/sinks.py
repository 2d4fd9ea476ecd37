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
    from typing import BinaryIO

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
    refuse_what_is_there(path, force=force)
    try:
        with (
            part_of(path) as part,
            io.TextIOWrapper(part, encoding="utf-8", newline="\n") as text,
        ):
            yield lambda lines: bool(text.write(lines))
    except OSError as error:
        message = f"{path} cannot be written ({error.strerror})"
        raise CommandFailed(message) from None


def refuse_what_is_there(path: Path, *, force: bool) -> None:
    """Make sure that a file may be written.

    Raises:
        StartError: It is there already, or it is a folder.
    """
    if path.is_dir():
        message = f"{path} is a folder: name a file in it"
        raise StartError(message)
    if path.is_file() and not force:
        message = f"{path} is there already: choose another name, or replace it with --force"
        raise StartError(message)


@contextmanager
def part_of(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Open a file that has a name of its own until the block ends well; then it takes its place.

    What is no file, a pipe or a device, is written as it is, and stays what it is.

    Args:
        path: Of the file; a link leads to it.
        mode: Its permissions where it is new, less those of the umask.

    Raises:
        OSError: It cannot be written.
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
