"""What clients are told of files, and lists of them."""

from __future__ import annotations

import heapq
import os
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_LISTED: Final = 10_000


class Entry(TypedDict):
    """A file or folder, as clients see it."""

    name: str
    type: str
    """`file`, `folder`, `link` or `other`."""
    size: int
    """In bytes; 0 for what is no file."""
    mode: str
    """Permissions, octal: `0644`."""
    modified_at: str
    """In UTC, ISO 8601."""


class Listing(TypedDict):
    """A part of a folder, by name."""

    data: list[Entry]
    has_more: bool


def entry(name: str, status: os.stat_result) -> Entry:
    """Return what clients are told of a file."""
    mode = status.st_mode
    if stat.S_ISREG(mode):
        kind = "file"
    elif stat.S_ISDIR(mode):
        kind = "folder"
    else:
        kind = "link" if stat.S_ISLNK(mode) else "other"
    return {
        "name": name,
        "type": kind,
        "size": status.st_size if kind == "file" else 0,
        "mode": f"{stat.S_IMODE(mode):04o}",
        "modified_at": moment(status),
    }


def moment(status: os.stat_result) -> str:
    """Return when a file was modified."""
    at = datetime.fromtimestamp(status.st_mtime_ns // 1_000_000 / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def listing(folder: int, after: str, limit: int) -> Listing:
    """Return names of a folder, in their order; memory is bounded by the limit.

    Args:
        folder: Descriptor, open for reading.
        after: Only names that come after this one.
        limit: At most so many. Names that are not UTF-8 are left out.

    Raises:
        OSError: It cannot be read.
    """
    names = heapq.nsmallest(limit + 1, (name for name in _names(folder) if name > after))
    entries = list[Entry]()
    for name in names[:limit]:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # removed meanwhile
        entries.append(entry(name, status))
    return {"data": entries, "has_more": len(names) > limit}


def _names(folder: int) -> Iterator[str]:
    with os.scandir(folder) as found:
        for one in found:
            try:
                one.name.encode()
            except UnicodeEncodeError:
                continue
            yield one.name
