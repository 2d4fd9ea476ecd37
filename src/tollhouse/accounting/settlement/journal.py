"""The journal: charges on disk between the reply's last byte and the database's next transaction.

    append ──> a.log   being filled
               b.log   being booked     ──> database ──> emptied

The two files take turns: while the charges of one are booked, new ones are put into the other, so
that a file is emptied only after all of it was booked. What is found in either at a start was left
behind by a process that was killed.

A file has its room from the start and is mapped into memory: to append is to copy some hundred
bytes, and what was copied is the kernel's, whatever becomes of the process. (A `write` costs little
more, but it lets another thread take the interpreter, and waits until that gives it back; and it
waits while the file system commits what the database has just flushed.)

A record is a line, `<CRC-32 of the payload as 8 hex digits> <payload>`; the payload is JSON and so
has no line break of its own. Zeros follow the last one. A kill leaves half a record at most; the
checksum finds it, and whatever else is not as it was written.

    <folder>/a.log, b.log       the journal
    <folder>.marks              for each of them, how many bytes it has and their checksum
    <folder>/missing.log        that charges were gone at a start: a file was emptied, or replaced
    <folder>/unbookable.log     charges that no database would take, for a person to look at
    <folder>/damaged.log        what was found in the journal and is no record, as it was
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from binascii import crc32
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import IO

ROOM: Final = 1024 * 1024
"""Bytes by which a file grows; one that was emptied has at least so many."""
KEPT: Final = 4 * ROOM
"""Bytes from which a file that was emptied gives back its room."""
RECORD_ROOM: Final = 1024
"""Bytes that a charge takes, and more than most do."""
_NAMES: Final = ("a.log", "b.log")
_ASIDE: Final = "unbookable.log"
_DAMAGED: Final = "damaged.log"
_MISSING: Final = "missing.log"
_MARK: Final = struct.Struct("<II")
"""Bytes and their CRC-32."""
_MARKS_SIZE: Final = _MARK.size * len(_NAMES)
_CHECKSUM_DIGITS: Final = 8
_EMPTY: Final = b"\0"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """Bytes of a journal that are no record."""

    file: str
    offset: int
    data: bytes = field(repr=False)
    is_tail: bool
    """Whether they are the file's last: a record that a kill cut off, of a reply that never left
    whole."""


@dataclass(frozen=True, slots=True)
class MissingCharges:
    """Charges that a file of the journal had, and has no more."""

    file: str
    expected: int
    """Bytes that were written into it."""
    found: int


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What was in the journal at the start."""

    payloads: list[bytes]
    damages: list[DamagedRecord]
    missing: list[MissingCharges] = field(default_factory=list[MissingCharges])


class _Marks:
    """What each file holds, in another file: so that one that was emptied from outside is noticed.

    A mark follows the record and goes before the file is emptied, so a kill in between leaves more
    in the file than its mark says, never less. It is written in one piece: it is one machine word.
    """

    def __init__(self, path: Path) -> None:
        """Open it, with what is in it.

        Raises:
            OSError: It cannot be opened, or there is no room.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size < _MARKS_SIZE:
                os.pwrite(descriptor, bytes(_MARKS_SIZE), 0)
            self._map = mmap.mmap(descriptor, _MARKS_SIZE)
        finally:
            os.close(descriptor)

    def set(self, number: int, used: int, checksum: int) -> None:
        at = number * _MARK.size
        self._map[at : at + _MARK.size] = _MARK.pack(used, checksum)

    def sync(self) -> None:
        self._map.flush()

    def close(self) -> None:
        self._map.close()


class _File:
    """One file: records from its beginning, zeros from there to its end."""

    def __init__(self, path: Path, marks: _Marks) -> None:
        """Open it, with what is in it, and give it room.

        Raises:
            OSError: It cannot be opened, there is no room, or the file system cannot map it.
        """
        self._marks, self._number = marks, _NAMES.index(path.name)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            held = path.read_bytes().rstrip(_EMPTY)
            self._used, self._checksum = len(held), crc32(held)
            self._size = os.fstat(self._descriptor).st_size
            self._grow(max(ROOM, self._used))
            self._map = mmap.mmap(self._descriptor, self._size)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, line: bytes) -> None:
        self.reserve(len(line))
        end = self._used + len(line)
        self._map[self._used : end] = line
        self._used, self._checksum = end, crc32(line, self._checksum)
        self._marks.set(self._number, end, self._checksum)

    def reserve(self, size: int) -> None:
        """Have room for so many more bytes.

        Raises:
            OSError: There is none.
        """
        if self._used + size > len(self._map):
            self._grow(self._used + size + ROOM)
            self._remap(self._size)

    def empty(self) -> None:
        self._marks.set(self._number, 0, 0)
        gives_back = self._size > KEPT
        zeros = min(self._used, ROOM) if gives_back else self._used
        self._map[:zeros] = bytes(zeros)
        if gives_back:
            self._remap(ROOM)
            os.ftruncate(self._descriptor, ROOM)
            self._size = ROOM
        self._used = self._checksum = 0

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        self._map.close()
        os.close(self._descriptor)

    def _remap(self, size: int) -> None:
        """Map another size; where that fails the old map stays."""
        old, self._map = self._map, mmap.mmap(self._descriptor, size)
        old.close()

    def _grow(self, size: int) -> None:
        """Reserve room by writing zeros: what is only promised could be missing when it is used."""
        missing = size - self._size
        if missing <= 0:
            return
        if os.pwrite(self._descriptor, bytes(missing), self._size) != missing:
            os.ftruncate(self._descriptor, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size = size


class Journal:
    """Two files that take turns."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; nothing is touched yet."""
        self._folder = folder
        # Not in the folder: it tells that the folder was emptied, too.
        self._marked = folder.with_name(f"{folder.name}.marks")
        self._files: list[_File] = []
        self._marks: _Marks | None = None
        self._active = 0

    def open(self) -> None:
        """Make the files and their room; `append` does it otherwise.

        Raises:
            OSError: They cannot be made, or there is no room.
        """
        if not self._files:
            self._make_folder()
            marks = _Marks(self._marked)
            try:
                first = _File(self._folder / _NAMES[0], marks)
                try:
                    self._files = [first, _File(self._folder / _NAMES[1], marks)]
                except BaseException:
                    first.close()
                    raise
            except BaseException:
                marks.close()
                raise
            self._marks = marks

    def append(self, payload: bytes) -> None:
        """Write a record; from the return on it survives the end of this process.

        Args:
            payload: JSON without line breaks.

        Raises:
            OSError: The disk is full, or cannot be written. Nothing of the record is left behind.
        """
        if not self._files:
            self.open()
        self._files[self._active].append(_line(payload))

    def reserve(self, charges: int) -> None:
        """Have room for so many more charges, whichever file they will go to.

        Raises:
            OSError: The disk is full, or cannot be written.
        """
        if not self._files:
            self.open()
        for file in self._files:
            file.reserve(charges * RECORD_ROOM)

    def turn(self) -> None:
        """Append to the other file from now on."""
        self._active = 1 - self._active

    def forget(self) -> None:
        """Empty the file that is not appended to: all of it is booked."""
        if self._files:
            self._files[1 - self._active].empty()

    def clear(self) -> None:
        """Empty both files: what was left behind is booked.

        Raises:
            OSError: See `open`.
        """
        self.open()
        for file in self._files:
            file.empty()

    def sync(self) -> None:
        """Make every record so far survive a power failure; blocks while the disk writes."""
        for file in self._files:
            file.sync()
        if self._marks is not None:
            self._marks.sync()

    def set_aside(self, payload: bytes) -> None:
        """Keep a record for a person to look at; the journal may forget it then.

        Raises:
            OSError: It cannot be written.
        """
        self._keep(_ASIDE, _line(payload))

    def keep_damaged(self, damages: Sequence[DamagedRecord]) -> None:
        """Keep what is no record for a person to look at.

        Raises:
            OSError: It cannot be written.
        """
        if damages:
            self._keep(_DAMAGED, b"".join(damage.data + b"\n" for damage in damages))

    def _keep(self, name: str, data: bytes) -> None:
        self._make_folder()
        with _open_to_append(self._folder / name) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def leftovers(self) -> Leftovers:
        """Return what is in the files: at a start, what a process that was killed left behind.

        Raises:
            OSError: A file cannot be read.
        """
        left = Leftovers([], [])
        marks = _read(self._marked).ljust(_MARKS_SIZE, _EMPTY)
        for name, (used, checksum) in zip(_NAMES, _MARK.iter_unpack(marks), strict=True):
            data = _read(self._folder / name)
            found = parse(name, data)
            left.payloads.extend(found.payloads)
            left.damages.extend(found.damages)
            held = data.rstrip(_EMPTY)
            # A record that a kill cut off is behind the mark.
            if crc32(data[:used]) != checksum:
                left.missing.append(MissingCharges(name, used, len(held)))
        return left

    def keep_missing(self, missing: Sequence[MissingCharges]) -> None:
        """Note that charges are gone, until a person takes the note away.

        Raises:
            OSError: It cannot be written.
        """
        if missing:
            lines = (f"{each.file} {each.expected} {each.found}\n" for each in missing)
            self._keep(_MISSING, "".join(lines).encode())

    def noted_missing(self) -> Sequence[MissingCharges]:
        """Return what `keep_missing` noted.

        Raises:
            OSError: It cannot be read.
        """
        lines = (line.split() for line in _read(self._folder / _MISSING).decode().splitlines())
        return [MissingCharges(file, int(expected), int(found)) for file, expected, found in lines]

    def close(self) -> None:
        """Give up the files; a later append opens them again."""
        files, self._files = self._files, []
        for file in files:
            file.close()
        if self._marks is not None:
            self._marks.close()
            self._marks = None

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def parse(name: str, data: bytes) -> Leftovers:
    """Return the records in a file's bytes, and what is none.

    Args:
        name: What the file is called, for the report.
        data: All of it.
    """
    payloads: list[bytes] = []
    damages: list[DamagedRecord] = []
    used = data.rstrip(_EMPTY)
    # A kill while the file was emptied: all of it is booked, whatever is left.
    begin = len(used) - len(used.lstrip(_EMPTY))
    offset = begin
    for line in used[begin:].splitlines(keepends=True):
        payload = _payload(line)
        if payload is not None:
            payloads.append(payload)
        elif not begin or offset > begin:
            is_tail = offset + len(line) == len(used)
            damages.append(DamagedRecord(name, offset, line, is_tail))
        offset += len(line)
    return Leftovers(payloads, damages)


def _line(payload: bytes) -> bytes:
    return b"%08x %b\n" % (crc32(payload), payload)


def _payload(line: bytes) -> bytes | None:
    """Return what a line carries; None where it is not as it was written."""
    checksum, _, payload = line.removesuffix(b"\n").partition(b" ")
    whole = line.endswith(b"\n") and len(checksum) == _CHECKSUM_DIGITS
    return payload if whole and checksum == b"%08x" % crc32(payload) else None


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _open_to_append(path: Path) -> IO[bytes]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "ab")
