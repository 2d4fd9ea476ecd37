"""A file that is mapped into memory: what is copied there is the kernel's, whoever dies then.

(A `write` would wait for another thread to give the interpreter back, and for what the database has
just flushed.)
"""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class MappedFile:
    """A file and its bytes; `OSError` says that the disk is full, say, and leaves all as it was."""

    def __init__(self, path: Path, size: int) -> None:
        """Make the file if it is missing, with so many bytes at least; new ones are zeros."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._size = os.fstat(self._descriptor).st_size
            self._extend(size)
            self.bytes = mmap.mmap(self._descriptor, self._size)
        except BaseException:
            os.close(self._descriptor)
            raise

    def grow(self, size: int) -> None:
        """Have so many bytes at least."""
        self._extend(size)
        self._map(self._size)

    def shrink(self, size: int) -> None:
        """Give the room back that is beyond so many bytes."""
        self._map(size)
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Make what was copied survive a power failure; blocks while the disk writes."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give up the file; what is in it stays there."""
        self.bytes.close()
        os.close(self._descriptor)

    def _extend(self, size: int) -> None:
        """Write zeros: room that is only promised could be missing when it is used."""
        missing = size - self._size
        if missing > 0:
            if os.pwrite(self._descriptor, bytes(missing), self._size) != missing:
                os.ftruncate(self._descriptor, self._size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._size = size

    def _map(self, size: int) -> None:
        """Map another size; where that fails the old map stays."""
        old, self.bytes = self.bytes, mmap.mmap(self._descriptor, size)
        old.close()
