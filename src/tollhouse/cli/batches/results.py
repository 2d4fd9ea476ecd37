"""The results of a batch on their way to a file or to standard output."""

from __future__ import annotations

import io
import os
import sys
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tollhouse.cli.batches.formats import is_failed, line_of
from tollhouse.cli.batches.reading import BatchReader, Broken
from tollhouse.cli.batches.source import STANDARD_INPUT
from tollhouse.cli.batches.views import ENDED, ENDED_OTHERWISE, error_of
from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.output import one_line, write
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from tollhouse.cli.batches.formats import Format

    Sink = Callable[[str], bool]
    """Takes lines; tells whether anybody wants more."""

STANDARD_OUTPUT: Final = STANDARD_INPUT
_GATHERED: Final = 256 * 1024


class NoResults(CommandFailed):
    """The batch ended without any."""

    exit_code = ENDED_OTHERWISE


class Tally(NamedTuple):
    """What was written."""

    results: int
    failed: int


@contextmanager
def opened(file: str | None, *, force: bool) -> Generator[Sink]:
    """Open what results are written to.

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


async def write_results(pieces: AsyncIterator[bytes], form: Format, sink: Sink) -> Tally:
    """Write a batch's results, a line each.

    Args:
        pieces: The batch, as the server sends it.
        form: How they look.
        sink: Takes the lines.

    Raises:
        CommandFailed: The batch has no results, or not yet; or not all of it came.
    """
    reader = BatchReader(pieces)
    try:
        tally = await _written_of(reader, form, sink)
    except Broken as error:
        message = f"the server sent something else than a batch ({error}): try again"
        raise CommandFailed(message) from None
    if not reader.has_results:
        raise _without_results(reader.batch)
    return tally


async def _written_of(reader: BatchReader, form: Format, sink: Sink) -> Tally:
    gathered: list[str] = []
    size = count = failed = 0
    async with aclosing(reader.results()) as results:
        async for result in results:
            line = f"{line_of(result, form)}\n"
            gathered.append(line)
            count, failed, size = count + 1, failed + is_failed(result.value), size + len(line)
            if size >= _GATHERED:
                if not sink("".join(gathered)):
                    return Tally(count, failed)
                gathered, size = [], 0
    sink("".join(gathered))
    return Tally(count, failed)


def _without_results(batch: dict[str, Any]) -> CommandFailed:
    if batch.get("object") != "batch":
        return CommandFailed("the server did not answer with a batch: check the address")
    name, status = batch["id"], batch["status"]
    why = one_line(error_of(batch) or "the server says no reason")
    if status in ENDED:
        return NoResults(f"{name} is {status} and has no results: {why}")
    return CommandFailed(
        f"{name} is {status} and has no results yet: wait with `tollhouse batch show {name} "
        "--watch`"
    )


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
