"""The journal: charges on disk between the reply's last byte and the database's next transaction.

    append ──> a.log   being written
               b.log   being booked     ──> database ──> emptied

The two files take turns: while the charges of one are booked, new ones are appended to the other,
so that a file is emptied only after all of it was booked. What is found in either at a start was
left behind by a process that was killed.

A record is a line, `<CRC-32 of the payload as 8 hex digits> <payload>`; the payload is JSON and so
has no line break of its own. A kill ends the file in the middle of a record at most; the checksum
finds it, and whatever else is not as it was written.

    <folder>/a.log, b.log       the journal
    <folder>/unbookable.log     charges that no database would take, for a person to look at
"""

from __future__ import annotations

import errno
import os
from binascii import crc32
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

_NAMES: Final = ("a.log", "b.log")
_ASIDE: Final = "unbookable.log"
_CHECKSUM_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a journal that are no record."""

    file: str
    offset: int
    size: int
    is_tail: bool
    """Whether they are the file's last: a record that a kill cut off, of a reply that never left
    whole."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was in the journal at the start."""

    payloads: list[bytes]
    damages: list[Damage]


class Journal:
    """Two files that take turns. Nothing is opened before the first append."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first record comes."""
        self._folder = folder
        self._descriptors: list[int] = []
        self._sizes = [0, 0]
        self._active = 0

    def append(self, payload: bytes) -> None:
        """Write a record; from the return on it survives the end of this process.

        Args:
            payload: JSON without line breaks.

        Raises:
            OSError: The disk is full, or cannot be written. Nothing of the record is left behind.
        """
        if not self._descriptors:
            self._open()
        line = b"%08x %b\n" % (crc32(payload), payload)
        active = self._active
        written = os.write(self._descriptors[active], line)
        if written != len(line):
            os.ftruncate(self._descriptors[active], self._sizes[active])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._sizes[active] += written

    def turn(self) -> None:
        """Append to the other file from now on."""
        self._active = 1 - self._active

    def forget(self) -> None:
        """Empty the file that is not written to: all of it is booked."""
        resting = 1 - self._active
        if self._sizes[resting]:
            os.ftruncate(self._descriptors[resting], 0)
            self._sizes[resting] = 0

    def sync(self) -> None:
        """Make every record so far survive a power failure; blocks while the disk writes."""
        for descriptor in self._descriptors:
            os.fdatasync(descriptor)

    def set_aside(self, payload: bytes) -> None:
        """Keep a record for a person to look at; the journal may forget it then.

        Raises:
            OSError: It cannot be written.
        """
        self._make_folder()
        with _open(self._folder / _ASIDE) as file:
            file.write(b"%08x %b\n" % (crc32(payload), payload))
            file.flush()
            os.fsync(file.fileno())

    def leftovers(self) -> Leftovers:
        """Return what a process that was killed has left behind.

        Raises:
            OSError: A file cannot be read.
        """
        payloads: list[bytes] = []
        damages: list[Damage] = []
        for name in _NAMES:
            path = self._folder / name
            if path.exists():
                found = parse(name, path.read_bytes())
                payloads += found.payloads
                damages += found.damages
        return Leftovers(payloads, damages)

    def clear(self) -> None:
        """Empty both files: what was left behind is booked."""
        for name in _NAMES:
            path = self._folder / name
            if path.exists():
                os.truncate(path, 0)

    def close(self) -> None:
        """Give up the files; a later append opens them again."""
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)

    def _open(self) -> None:
        self._make_folder()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptors = [os.open(self._folder / name, flags, 0o600) for name in _NAMES]
        self._sizes = [os.fstat(descriptor).st_size for descriptor in self._descriptors]

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def parse(name: str, data: bytes) -> Leftovers:
    """Return the records in a file's bytes, and what is none.

    Args:
        name: What the file is called, for the report.
        data: All of it.
    """
    payloads: list[bytes] = []
    damages: list[Damage] = []
    offset = 0
    for line in data.splitlines(keepends=True):
        payload = _payload(line)
        if payload is None:
            is_tail = offset + len(line) == len(data)
            damages.append(Damage(name, offset, len(line), is_tail))
        else:
            payloads.append(payload)
        offset += len(line)
    return Leftovers(payloads, damages)


def _payload(line: bytes) -> bytes | None:
    """Return what a line carries; None where it is not as it was written."""
    checksum, _, payload = line.removesuffix(b"\n").partition(b" ")
    whole = line.endswith(b"\n") and len(checksum) == _CHECKSUM_DIGITS
    return payload if whole and checksum == b"%08x" % crc32(payload) else None


def _open(path: Path) -> IO[bytes]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "ab")
