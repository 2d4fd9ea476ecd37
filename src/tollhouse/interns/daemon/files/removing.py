"""Files and folders that go."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from tollhouse.interns.daemon.errors import Refused

if TYPE_CHECKING:
    from tollhouse.interns.daemon.files.tree import Place


def remove(place: Place, *, recursive: bool) -> None:
    """Remove what is at a place: a link itself, not what it leads to.

    Args:
        place: Found without following a link at its end.
        recursive: Whether a folder goes with all that it holds.

    Raises:
        Refused: It is the workspace itself.
        OSError: It is not there, or a folder that is not empty.
    """
    if place.name == ".":
        raise Refused(409, "The workspace itself cannot be removed.")
    mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(mode):
        os.unlink(place.name, dir_fd=place.folder)
    elif recursive:
        shutil.rmtree(place.name, dir_fd=place.folder)
    else:
        os.rmdir(place.name, dir_fd=place.folder)
