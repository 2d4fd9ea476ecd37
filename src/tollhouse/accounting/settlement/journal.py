"""The journal: charges on disk between the reply's last byte and the database's next transaction.

    append ──> a.log   being filled
               b.log   being booked     ──> books process ──> database; then it is emptied

The two files take turns: while the charges of one are booked, new ones are put into the other, so
that a file is emptied only after all of it was booked. What is found in either at a start was left
behind by a process that was killed.

A file has its room from the start and is mapped into memory: to append is to copy some hundred
bytes, and what was copied is the kernel's, whatever becomes of the process. (A `write` would wait
for another thread to give the interpreter back, and for what the database has just flushed.)

A record is a line, `<CRC-32 of the payload as 8 hex digits> <payload>`, of JSON without a line
break. Zeros follow the last one. The checksum finds the half record that a kill may leave, and
whatever else is not as it was written.

    <folder>/a.log, b.log       the journal
    <folder>/under_way.log      requests that have no charge yet: see `under_way`
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
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.payloads import line_of, payload_in
from tollhouse.accounting.settlement.under_way import RequestsUnderWay
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GROWTH_BYTES: Final = 1024 * 1024
"""By how much a file grows; one that was emptied has at least so much."""
SHRINK_BYTES: Final = 4 * GROWTH_BYTES
"""The size from which a file that was emptied shrinks."""
RECORD_BYTES: Final = 1024
"""What a charge takes; most take less."""
_NAMES: Final = ("a.log", "b.log")
_UNBOOKABLE: Final = "unbookable.log"
_DAMAGED: Final = "damaged.log"
_MISSING: Final = "missing.log"
_MARK: Final = struct.Struct("<II")
"""Bytes and their CRC-32."""
_MARKS_SIZE: Final = _MARK.size * len(_NAMES)
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
class JournalContents:
    """What is in the files of the journal, or in one of them."""

    payloads: list[bytes]
    damaged: list[DamagedRecord]
    missing: list[MissingCharges] = field(default_factory=list[MissingCharges])
    under_way: Sequence[bytes] = ()
    """Beginnings of requests; those that have a charge are booked by that."""


@dataclass(frozen=True, slots=True)
class JournalPart:
    """The beginning of a file of the journal: a group of charges."""

    name: str
    size: int
    checksum: int
    """The CRC-32 of its bytes."""


class _Marks:
    """What each file holds, in another file: so that one that was emptied from outside is noticed.

    A mark follows the record and goes before the file is emptied, so a kill in between leaves more
    in the file than its mark says, never less. It is written in one piece: it is one machine word.
    """

    def __init__(self, path: Path) -> None:
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
        self._marks, self._number = marks, _NAMES.index(path.name)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            held = path.read_bytes().rstrip(_EMPTY)
            self._used, self._checksum = len(held), crc32(held)
            self._size = os.fstat(self._descriptor).st_size
            self._grow(max(GROWTH_BYTES, self._used))
            self._map = mmap.mmap(self._descriptor, self._size)
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def part(self) -> JournalPart:
        return JournalPart(_NAMES[self._number], self._used, self._checksum)

    def append(self, line: bytes) -> None:
        self.reserve(len(line))
        end = self._used + len(line)
        self._map[self._used : end] = line
        self._used, self._checksum = end, crc32(line, self._checksum)
        self._marks.set(self._number, end, self._checksum)

    def reserve(self, size: int) -> None:
        """Have room for so many more bytes."""
        if self._used + size > len(self._map):
            self._grow(self._used + size + GROWTH_BYTES)
            self._remap(self._size)

    def empty(self) -> None:
        self._marks.set(self._number, 0, 0)
        gives_back = self._size > SHRINK_BYTES
        zeros = min(self._used, GROWTH_BYTES) if gives_back else self._used
        self._map[:zeros] = bytes(zeros)
        if gives_back:
            self._remap(GROWTH_BYTES)
            os.ftruncate(self._descriptor, GROWTH_BYTES)
            self._size = GROWTH_BYTES
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
    """Two files that take turns; `OSError` says that the disk is full or cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.under_way = RequestsUnderWay(folder)
        # Not in the folder: it tells that the folder was emptied, too.
        self._marked = folder.with_name(f"{folder.name}.marks")
        self._files: list[_File] = []
        self._marks: _Marks | None = None
        self._active = 0

    def open(self) -> None:
        """Make the files and their room; `append` does it otherwise."""
        if not self._files:
            self._make_folder()
            with ExitStack() as opened:
                marks = _Marks(self._marked)
                opened.callback(marks.close)
                files: list[_File] = []
                for name in _NAMES:
                    files.append(_File(self._folder / name, marks))
                    opened.callback(files[-1].close)
                opened.pop_all()
            self._files, self._marks = files, marks

    def append(self, payload: bytes) -> None:
        """Write a record of JSON without line breaks; it survives the end of this process then.

        After an `OSError` nothing of it is left behind.
        """
        if not self._files:
            self.open()
        blocking_failpoint("journal.append.before")
        self._files[self._active].append(line_of(payload))
        blocking_failpoint("journal.append.after")

    def reserve(self, charges: int) -> None:
        """Have room for so many more charges, whichever file they will go to."""
        if not self._files:
            self.open()
        for file in self._files:
            file.reserve(charges * RECORD_BYTES)
        self.under_way.reserve(charges)

    def switch_files(self) -> JournalPart:
        """Append to the other file from now on; return what is in the one that was appended to."""
        self.open()
        part = self._files[self._active].part
        self._active = 1 - self._active
        blocking_failpoint("books.group.begun")
        return part

    def empty_booked(self) -> None:
        """Empty the file that is not appended to, all of which is booked."""
        if self._files:
            self._files[1 - self._active].empty()

    def clear(self) -> None:
        """Empty all files: what was left behind is booked."""
        self.open()
        for file in self._files:
            file.empty()
        self.under_way.clear()

    def sync(self) -> None:
        """Make every record so far survive a power failure; blocks while the disk writes."""
        for file in self._files:
            file.sync()
        if self._marks is not None:
            self._marks.sync()

    def quarantine(self, payload: bytes) -> None:
        """Keep a record for a person to look at, so that its file may be emptied."""
        self._keep(_UNBOOKABLE, line_of(payload))

    def keep_damaged(self, damaged: Sequence[DamagedRecord]) -> None:
        """Keep what is no record for a person to look at."""
        if damaged:
            self._keep(_DAMAGED, b"".join(damage.data + b"\n" for damage in damaged))

    def _keep(self, name: str, data: bytes) -> None:
        self._make_folder()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._folder / name, flags, 0o600), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def read_unbooked(self) -> JournalContents:
        """Return what is not booked: at a start, what a process that was killed left behind."""
        contents = JournalContents([], [], under_way=self.under_way.read())
        marks = _read(self._marked).ljust(_MARKS_SIZE, _EMPTY)
        for name, (used, checksum) in zip(_NAMES, _MARK.iter_unpack(marks), strict=True):
            data = _read(self._folder / name)
            found = parse(name, data)
            contents.payloads.extend(found.payloads)
            contents.damaged.extend(found.damaged)
            held = data.rstrip(_EMPTY)
            # A record that a kill cut off is behind the mark.
            if crc32(data[:used]) != checksum:
                contents.missing.append(MissingCharges(name, used, len(held)))
        return contents

    def keep_missing(self, missing: Sequence[MissingCharges]) -> None:
        """Note that charges are gone, until a person takes the note away."""
        if missing:
            lines = (f"{each.file} {each.expected} {each.found}\n" for each in missing)
            self._keep(_MISSING, "".join(lines).encode())

    def noted_missing(self) -> Sequence[MissingCharges]:
        """Return what `keep_missing` noted."""
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
        self.under_way.close()

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def parse(name: str, data: bytes) -> JournalContents:
    """Return the records in the bytes of a file of this name, and what is none."""
    payloads: list[bytes] = []
    damaged: list[DamagedRecord] = []
    used = data.rstrip(_EMPTY)
    # A kill while the file was emptied: all of it is booked, whatever is left.
    begin = len(used) - len(used.lstrip(_EMPTY))
    offset = begin
    for line in used[begin:].splitlines(keepends=True):
        payload = payload_in(line)
        if payload is not None:
            payloads.append(payload)
        elif not begin or offset > begin:
            is_tail = offset + len(line) == len(used)
            damaged.append(DamagedRecord(name, offset, line, is_tail))
        offset += len(line)
    return JournalContents(payloads, damaged)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
