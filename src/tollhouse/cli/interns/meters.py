"""How much of a file has come, on standard error: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tollhouse.cli.batches.meters import is_terminal

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.progress import Progress


class Received(Protocol):
    """Is told what comes."""

    def begin(self, size: int) -> None:
        """So many bytes will come."""
        ...

    def advance(self, size: int) -> None:
        """So many more have come."""
        ...


@contextmanager
def receiving(*, quiet: bool = False) -> Generator[Received]:
    """Show how much of a file has come, until the end of the block; on a terminal only.

    Args:
        quiet: Whether the file itself is written to a terminal, where a bar would stand in it.
    """
    if quiet or not is_terminal():
        yield _Nothing()
        return
    # Imported where a bar is drawn: commands that draw none start faster.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    with Progress(
        TextColumn("{task.description:<11}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        yield _Bar(progress)


class _Nothing:
    def begin(self, size: int) -> None:
        pass

    def advance(self, size: int) -> None:
        pass


class _Bar:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("receiving", total=None)

    def begin(self, size: int) -> None:
        self._progress.update(self._task, total=size)

    def advance(self, size: int) -> None:
        self._progress.advance(self._task, size)
