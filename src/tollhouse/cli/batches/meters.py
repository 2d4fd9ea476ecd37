"""How far something came, on standard error: a bar on a terminal, plain lines elsewhere.

The library that draws bars is imported where one is drawn.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.kernel.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from rich.progress import Progress, TaskID

    from tollhouse.cli.output import Item
    from tollhouse.kernel.clock import Clock

QUIET_SECONDS: Final = 5.0
"""Between two lines about one status."""


class Meter(Protocol):
    """Shows how far a batch came."""

    def show(self, batch: Item) -> None:
        """Show the batch as it stands."""
        ...

    def say(self, text: str) -> None:
        """Say something besides."""
        ...


def is_terminal() -> bool:
    """Tell whether standard error can show a bar."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def watching() -> Generator[Meter]:
    """Show how a batch goes on until the end of the block."""
    if not is_terminal():
        yield Lines(_print, SystemClock())
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    with _drawn(
        TextColumn("{task.description:<11}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[failed]:,} failed"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    ) as progress:
        yield _Bar(progress)


@contextmanager
def sending(size: int) -> Generator[Callable[[Iterable[bytes]], Iterator[bytes]]]:
    """Show how much of a body is sent, until the end of the block; on a terminal only.

    Args:
        size: Bytes of all of it.

    Yields:
        What its pieces have to pass through.
    """
    if not is_terminal():
        yield iter
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn

    with _drawn(
        TextColumn("{task.description:<11}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    ) as progress:
        task = progress.add_task("sending", total=size)

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                yield piece
                progress.advance(task, len(piece))
            progress.update(task, description="checking")

        yield counted


class Lines:
    """A line for each change, at most one every few seconds while the status stays."""

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        """Take where lines go, and a clock."""
        self._write = write
        self._clock = clock
        self._status = ""
        self._line = ""
        self._at = 0.0

    def show(self, batch: Item) -> None:
        """Write a line if the batch changed."""
        line, now = progress_line(batch), self._clock.monotonic()
        is_new = batch["status"] != self._status
        if is_new or (line != self._line and now - self._at >= QUIET_SECONDS):
            self._status = batch["status"]
            self._line, self._at = line, now
            self._write(line)

    def say(self, text: str) -> None:
        """Write a line."""
        self._write(text)


def progress_line(batch: Item) -> str:
    """Return how far a batch came, in one line."""
    counts = batch["request_counts"]
    done = f"{counts['completed']} completed, {counts['failed']} failed of {counts['total']}"
    return f"{batch['id']} {batch['status']}: {done}"


class _Bar:
    """A bar that is drawn anew as the batch goes on."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def show(self, batch: Item) -> None:
        counts = batch["request_counts"]
        done = counts["completed"] + counts["failed"]
        if self._task is None:
            # What was done before is no part of the rate.
            self._task = self._progress.add_task(
                batch["status"],
                total=counts["total"],
                completed=done,
                failed=counts["failed"],
                rate="",
            )
            return
        speed = self._progress.tasks[0].speed
        self._progress.update(
            self._task,
            description=batch["status"],
            completed=done,
            failed=counts["failed"],
            rate="" if speed is None else f"{speed:,.1f}/s",
        )

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)


@contextmanager
def _drawn(*columns: object) -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(*columns, console=Console(stderr=True)) as progress:  # pyright: ignore[reportArgumentType]
        yield progress


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
