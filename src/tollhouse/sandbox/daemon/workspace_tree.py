"""Finds paths in the workspace, name by name, and never one outside.

Each folder is opened relative to the one before it, and none through a link: where links lead is
resolved here. So a program that replaces a folder by a link meanwhile cannot lead outside.

Source: open(2), O_NOFOLLOW, O_PATH; path_resolution(7).
"""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from tollhouse.sandbox.daemon.http import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

_MOST_LINKS: Final = 40
_DEEPEST: Final = 256
"""Folders on a path: each is held open."""
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOO_DEEP: Final = RequestError(400, f"The path leads through more than {_DEEPEST} folders.")
_OUTSIDE: Final = RequestError(403, "A link on the path leads out of the workspace.")
T = TypeVar("T")


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run something in a thread, since a disk may be slow and terminals go on meanwhile.

    A task that is cancelled waits for the thread, which uses descriptors that the task closes next.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


@dataclass(frozen=True, slots=True)
class PathLocation:
    """Where a file is, or would be."""

    folder: int
    """Descriptor of its folder, opened with O_PATH: it cannot be read."""
    name: str
    """In that folder; `.` for the folder itself. No link, unless links were not followed."""


class WorkspaceTree:
    """A folder and all below it. Links that begin with its path lead into it."""

    def __init__(self, path: str) -> None:
        self._roots = {path.rstrip("/"), os.path.realpath(path)}
        self._root = os.open(path, _FOLDER & ~os.O_NOFOLLOW)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def space(self) -> int:
        """Return the free bytes of its file system."""
        found = os.fstatvfs(self._root)
        return found.f_bavail * found.f_frsize

    @contextmanager
    def place(
        self, names: Sequence[str], *, follow: bool = True, make: bool = False
    ) -> Generator[PathLocation]:
        """Find a path, for as long as the block runs; `make` makes missing folders on it.

        A link at the end is followed only with `follow`, others always are. It is a `RequestError`
        that a link leads outside, or that the path is too deep.
        """
        if len(names) - 1 > _DEEPEST:
            raise _TOO_DEEP  # before any of them is made
        walk = _PathWalk(self._roots, self._root, make=make)
        try:
            name = walk.walk(names, follow=follow)
            yield PathLocation(walk.folder(), name)
        finally:
            walk.close()


class _PathWalk:
    def __init__(self, roots: set[str], root: int, *, make: bool) -> None:
        self._roots = roots
        self._make = make
        self._folders = [os.dup(root)]

    def folder(self) -> int:
        return self._folders[-1]

    def walk(self, names: Sequence[str], *, follow: bool) -> str:
        """Walk along the names; return the last one, whose folder is `folder()` then."""
        todo = list(reversed(names))
        links = 0
        while todo:
            name = todo.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                self._leave()
                continue
            target = _link_target(self.folder(), name) if todo or follow else None
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
        """Go where a link's target begins; return the rest of it."""
        if not target.startswith("/"):
            return target
        for root in self._roots:
            if target == root or target.startswith(f"{root}/"):
                while len(self._folders) > 1:
                    self._leave()
                return target.removeprefix(root)
        raise _OUTSIDE


def _link_target(folder: int, name: str) -> str | None:
    """Return a link's target; None if it is no link, or not there."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return None
        raise
