"""Finds a place in the workspace, name by name, and never one outside.

Each folder is opened relative to the one before it, and none through a link: where links lead is
worked out here. So a program that swaps a folder for a link meanwhile leads nobody out.

Source: open(2), O_NOFOLLOW, O_PATH; path_resolution(7).
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_MOST_LINKS: Final = 40
_DEEPEST: Final = 256
"""Folders on a way: each is held open."""
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOO_DEEP: Final = Refused(400, f"The path leads through more than {_DEEPEST} folders.")
_OUTSIDE: Final = Refused(403, "A link on the path leads out of the workspace.")


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is, or would be."""

    folder: int
    """Descriptor of the folder that holds it, for names alone: it cannot be read."""
    name: str
    """In that folder; `.` for the folder itself. It is no link, unless links were to stay."""


class Tree:
    """A folder, and all below it."""

    def __init__(self, path: str) -> None:
        """Open it.

        Args:
            path: Absolute. Links that begin with it lead into the folder.

        Raises:
            OSError: There is no such folder.
        """
        self._roots = {path.rstrip("/"), os.path.realpath(path)}
        self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)

    def close(self) -> None:
        """Have done with it."""
        os.close(self._root)

    def space(self) -> int:
        """Return how many bytes more it takes."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def place(
        self, names: Sequence[str], *, follow: bool = True, make: bool = False
    ) -> Generator[Place]:
        """Find a place, for as long as the block runs.

        Args:
            names: From the folder on.
            follow: Whether a link at the end stands for what it leads to. Others always do.
            make: Whether folders that are missing on the way are made.

        Raises:
            Refused: A link leads out, or the way is too long.
            OSError: A folder on the way is missing or none.
        """
        if len(names) - 1 > _DEEPEST:
            raise _TOO_DEEP  # before any of them is made
        way = _Way(self._roots, self._root, make=make)
        try:
            name = way.walk(names, follow=follow)
            yield Place(way.folder(), name)
        finally:
            way.close()


class _Way:
    def __init__(self, roots: set[str], root: int, *, make: bool) -> None:
        self._roots = roots
        self._make = make
        self._folders = [os.dup(root)]

    def folder(self) -> int:
        return self._folders[-1]

    def walk(self, names: Sequence[str], *, follow: bool) -> str:
        """Go there; return the last name, whose folder is the one where this stands then."""
        todo = list(reversed(names))
        links = 0
        while todo:
            name = todo.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                self._leave()
                continue
            target = _target(self.folder(), name) if todo or follow else None
            if target is not None:
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                todo += reversed(self._from_here(target).split("/"))
            elif todo:
                self._enter(name)
            else:
                return name
        return "."

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def _leave(self) -> None:
        if len(self._folders) == 1:
            raise _OUTSIDE
        os.close(self._folders.pop())

    def _enter(self, name: str) -> None:
        if len(self._folders) > _DEEPEST:
            raise _TOO_DEEP
        if self._make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=self.folder())
        self._folders.append(os.open(name, _FOLDER, dir_fd=self.folder()))

    def _from_here(self, target: str) -> str:
        """Return a link's target as a path from here on, after going where it begins."""
        if not target.startswith("/"):
            return target
        for root in self._roots:
            if target == root or target.startswith(f"{root}/"):
                while len(self._folders) > 1:
                    self._leave()
                return target.removeprefix(root)
        raise _OUTSIDE


def _target(folder: int, name: str) -> str | None:
    """Return where a link leads; None for what is none, or is not there."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise
