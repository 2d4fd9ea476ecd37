"""Folder names that are on the disk for certain, and Zstandard for what is in files."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):  # PEP 784; before that its twin of another name
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["sync_folder", "zstd"]


def sync_folder(folder: Path | str) -> None:
    """Wait until the names in a folder are on the disk, as they are now.

    Raises:
        OSError: It is none, or they cannot be written.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
