"""Files and folders that go."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.errors import Refused

if TYPE_CHECKING:
    from tollhouse.sandbox.daemon.files.tree import Place

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(place: Place, *, recursive: bool) -> None:
    """Remove what is at a place: a link itself, not what it leads to.

    Args:
        place: Found without following a link at its end.
        recursive: Whether a folder goes with all that it holds, however deep.

    Raises:
        Refused: It is the workspace itself.
        OSError: It is not there, or a folder that is not empty.
    """
    if place.name == ".":
        raise Refused(409, "The workspace itself cannot be removed.")
    mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        os.unlink(place.name, dir_fd=place.folder)
        return
    if recursive:
        _empty(place)
    os.rmdir(place.name, dir_fd=place.folder)


def _empty(place: Place) -> None:
    """Remove what a folder holds; two folders are open at a time, at any depth."""
    current = os.open(place.name, _FOLDER, dir_fd=place.folder)
    above: list[tuple[str, list[str]]] = []
    try:
        folders = _folders_left(current)
        while folders or above:
            if folders:
                name = folders.pop()
                entered = os.open(name, _FOLDER, dir_fd=current)
                above.append((name, folders))
                folders = _folders_left(entered)
            else:
                entered = os.open("..", _FOLDER, dir_fd=current)
                name, folders = above.pop()
                os.rmdir(name, dir_fd=entered)
            os.close(current)
            current = entered
    finally:
        os.close(current)


def _folders_left(folder: int) -> list[str]:
    """Remove what a folder holds but for folders; return the names of those."""
    folders = list[str]()
    with os.scandir(folder) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                folders.append(each.name)
            else:
                os.unlink(each.name, dir_fd=folder)
    return folders
