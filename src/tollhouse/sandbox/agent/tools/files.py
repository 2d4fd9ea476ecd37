"""Reading, writing and editing files. These run in threads."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.context import ToolContext

MOST_LINES: Final = 2000
MOST_BYTES: Final = 64 * 1024
"""Bytes of a file that the model gets at once."""
LARGEST_EDITED: Final = 4 * 1024 * 1024
"""Bytes of a file that is edited, and characters of what comes of it."""
_NEW_MODE: Final = 0o644


def read_file(
    ctx: RunContext[ToolContext],
    path: str,
    first_line: Annotated[int, Field(ge=1)] = 1,
    lines: Annotated[int, Field(ge=1, le=MOST_LINES)] = MOST_LINES,
) -> str:
    """Return lines of a text file.

    Args:
        ctx: Of the call.
        path: Relative to the workspace, or absolute.
        first_line: The first line to return, counted from 1.
        lines: How many.
    """
    with _report_os_errors(), _open_regular(ctx.deps.workspace / path) as file:
        shown = bytearray()
        number = 0
        more = False
        for number, line in enumerate(iter(lambda: file.readline(MOST_BYTES), b""), 1):
            if number < first_line:
                continue
            if number >= first_line + lines or len(shown) + len(line) > MOST_BYTES:
                more = True
                break
            shown += line
    if not shown and number < first_line:
        return "(the file is empty)" if number == 0 else f"(the file has {number} lines)"
    note = f"\n[the file goes on: read from line {number}]" if more else ""
    return f"{_text(bytes(shown))}{note}"


def write_file(ctx: RunContext[ToolContext], path: str, content: str) -> str:
    """Write a file, in place of the one that may be there. Folders on the way are made.

    Args:
        ctx: Of the call.
        path: Relative to the workspace, or absolute.
        content: All of it.
    """
    data = content.encode(errors="replace")
    with _report_os_errors():
        _replace(ctx.deps.workspace / path, data)
    return f"{len(data)} bytes are written."


def edit_file(
    ctx: RunContext[ToolContext],
    path: str,
    old: str,
    new: str,
    everywhere: bool = False,  # noqa: FBT001, FBT002 - the model names it
) -> str:
    """Replace a piece of a text file by another one.

    Args:
        ctx: Of the call.
        path: Relative to the workspace, or absolute.
        old: What is there now, to the letter; it has to be there just once.
        new: What takes its place.
        everywhere: Replace it wherever it is.
    """
    target = ctx.deps.workspace / path
    with _report_os_errors():
        with _open_regular(target) as file:
            data = file.read(LARGEST_EDITED + 1)
        if len(data) > LARGEST_EDITED:
            raise ToolFailed(f"Files of more than {LARGEST_EDITED} bytes cannot be edited.")
        edited, count = _edited(_text(data), old, new, everywhere=everywhere)
        _replace(target, edited.encode(errors="replace"))
    return f"{count} places are replaced." if count > 1 else "One place is replaced."


def _edited(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int]:
    count = text.count(old) if old else 0
    if count == 0:
        raise ToolFailed("The file does not hold this text; read it again.")
    if count > 1 and not everywhere:
        raise ToolFailed(f"The file holds this text {count} times; give more of what is around it.")
    if len(text) + count * (len(new) - len(old)) > LARGEST_EDITED:
        raise ToolFailed(f"The file would have more than {LARGEST_EDITED} characters.")
    return text.replace(old, new), count


def _text(data: bytes) -> str:
    if b"\0" in data:
        raise ToolFailed("This is no text file.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ToolFailed("This is no text file, or not in UTF-8.") from None


def _open_regular(path: Path) -> BinaryIO:
    """Open a file to be read; nothing that would wait, or never end."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(file, "rb")
    os.close(file)
    if stat.S_ISDIR(mode):
        raise ToolFailed("This is a folder; list it with the shell.")
    raise ToolFailed("This is no ordinary file.")


def _replace(path: Path, data: bytes) -> None:
    """Put a file in place as a whole; a link stays, and its target is replaced."""
    target = Path(os.path.realpath(path))  # resolve() has an error of its own for links in a circle
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = _NEW_MODE
    with suppress(FileNotFoundError):
        found = target.stat().st_mode
        if not stat.S_ISREG(found):
            raise ToolFailed("There is something else that is no ordinary file.")
        mode = stat.S_IMODE(found)
    beside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}")
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as written:
            written.write(data)
            os.fchmod(file, mode)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def _report_os_errors() -> Generator[None]:
    """Tell the model what the system refuses."""
    try:
        yield
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else None
        raise ToolFailed(f"The system refuses: {text or error}.") from None
