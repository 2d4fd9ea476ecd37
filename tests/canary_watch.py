"""At the end of a whole run: no value of a secret is in any file that the run has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.canaries import PLANTED, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def leaks_below(folder: Path) -> list[str]:
    """Return the files below a folder, and cells of its databases, that hold a planted value."""
    scanner = Scanner(PLANTED)
    return sorted(
        {f"{path.relative_to(folder)} ({place})" for path, place in _found(scanner, folder)}
    )


def _found(scanner: Scanner, folder: Path) -> Iterator[tuple[Path, str]]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            for place, _ in scanner.in_file(path):
                yield path, place
