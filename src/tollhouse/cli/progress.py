"""Progress on standard error: a bar on a terminal, plain lines or nothing elsewhere.

The library that draws bars is imported where one is drawn.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.cli.output import Item
from tollhouse.kernel.clock import Clock, SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

QUIET_SECONDS: Final = 5.0
"""Between two lines about one status."""


def is_terminal() -> bool:
    """Tell whether standard error can show a bar."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def show_batch_progress() -> Generator[LineProgress | BatchBar]:
    """Show how a batch goes on until the end of the block."""
    if not is_terminal():
        yield LineProgress(_print, SystemClock())
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    with _bar(
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("{task.fields[failed]:,} failed"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    ) as bar:
        yield BatchBar(bar)


@contextmanager
def show_upload(size: int) -> Generator[Callable[[Iterable[bytes]], Iterator[bytes]]]:
    """Show how much of a body of `size` bytes passes through, on a terminal, in the block."""
    if not is_terminal():
        yield iter
        return
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

    with _bar(BarColumn(), DownloadColumn(), TransferSpeedColumn()) as bar:
        task = bar.add_task("sending", total=size)

        def counted(pieces: Iterable[bytes]) -> Iterator[bytes]:
            for piece in pieces:
                yield piece
                bar.advance(task, len(piece))
            bar.update(task, description="checking")

        yield counted


@contextmanager
def show_download(*, quiet: bool = False) -> Generator[Callable[[int, int], None]]:
    """Show how many bytes of how many have come, until the end of the block, on a terminal.

    `quiet` is for a file that is written to a terminal itself, where a bar would stand in it.
    """
    if quiet or not is_terminal():
        yield lambda _done, _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with _bar(*columns) as bar:
        task = bar.add_task("receiving", total=None)
        yield lambda done, size: bar.update(task, completed=done, total=size)


@contextmanager
def show_status() -> Generator[Callable[[str], None]]:
    """Show each new status that is passed on, in the block: in place, or a line for each."""
    if not is_terminal():
        shown = [""]

        def show(text: str) -> None:
            if text != shown.pop():
                _print(text)
            shown.append(text)

        yield show
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(stderr=True)) as status:
        yield status.update


@dataclass(slots=True)
class LineProgress:
    """A line for each change, at most one every few seconds while the status stays."""

    say: Callable[[str], None]
    """Writes a line."""
    clock: Clock
    _status: str = ""
    _line: str = ""
    _at: float = 0.0

    def show(self, batch: Item) -> None:
        """Write a line if the batch changed."""
        line, now = progress_line(batch), self.clock.monotonic()
        is_new = batch["status"] != self._status
        if is_new or (line != self._line and now - self._at >= QUIET_SECONDS):
            self._status = batch["status"]
            self._line, self._at = line, now
            self.say(line)


def progress_line(batch: Item) -> str:
    """Return how far a batch came, in one line."""
    counts = batch["request_counts"]
    done = f"{counts['completed']} completed, {counts['failed']} failed of {counts['total']}"
    return f"{batch['id']} {batch['status']}: {done}"


class BatchBar:
    """A bar of how far a batch came, and how fast."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def show(self, batch: Item) -> None:
        """Show the batch as it stands."""
        status, counts = batch["status"], batch["request_counts"]
        done, failed = counts["completed"] + counts["failed"], counts["failed"]
        if self._task is None:
            # What was done before is no part of the rate.
            self._task = self._bar.add_task(
                status, total=counts["total"], completed=done, failed=failed, rate=""
            )
            return
        speed = self._bar.tasks[0].speed
        rate = "" if speed is None else f"{speed:,.1f}/s"
        self._bar.update(self._task, description=status, completed=done, failed=failed, rate=rate)

    def say(self, text: str) -> None:
        """Say something besides."""
        self._bar.console.print(text, markup=False, highlight=False)


@contextmanager
def _bar(*columns: ProgressColumn) -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    description = TextColumn("{task.description:<11}")
    with Progress(description, *columns, console=Console(stderr=True)) as bar:
        yield bar


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
