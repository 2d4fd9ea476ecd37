"""The name of this machine, made once: what its interns are bound to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.folders import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tollhouse.kernel.ids import IdSource

_FILE: Final = "machine"


def machine_name(folder: Path, ids: IdSource) -> str:
    """Return the name that a folder keeps; made, and on the disk, where it has none yet.

    Raises:
        OSError: It can be neither read nor written.
    """
    note = folder / _FILE
    if note.exists() and (kept := note.read_text()):
        return kept
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = folder / f".{_FILE}"
    with made.open("w", encoding="utf-8") as file:
        file.write(ids.uuid())
        file.flush()
        os.fsync(file.fileno())
    made.replace(note)  # a whole name, or none: half of one would be another machine
    sync_folder(folder)
    return note.read_text()
