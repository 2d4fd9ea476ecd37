"""The journal: charges on disk between the reply's last byte and the database's next transaction.

    append ──> a.log   being filled
               b.log   being booked     ──> books process ──> database; then it is emptied

The two files take turns: while the charges of one are booked, new ones are put into the other, so
that a file is emptied only after all of it was booked.

A file has its room from the start and is mapped into memory: to append is to copy some hundred
bytes. A record is a line as in `records`; zeros follow the last one. The checksum finds the half
record that a kill may leave, and whatever else is not as it was written.

Each process that charges has a journal of its own, under an id that is never used again:

    <root>/<holder>/a.log, b.log     the journal
    <root>/<holder>/under_way.log    requests that have no charge yet: see `RequestsUnderWay`
    <root>/<holder>/lock             flock'd by the holder, from before the other files to its end
    <root>-marks/<holder>            for each file, how many bytes it has and their checksum
    <root>/*.log                     what a person is to look at: see `JournalNotes`

A journal whose lock is free was left behind: whoever takes the lock books what is in it, releases
the holder in the database, and removes the files. Until it is gone that can be done again.

The lock is the holder's alone, closed in the programs that it starts. So a books process of a
holder that was killed may still be at work when the journal is taken, until it finds its input
closed. It reads the same files and does not change them; of each charge the database keeps what
the first of the two booked, and the other waits for that; and what is released stays so.

The last version had one journal: the same files in the root itself, and `<root>.marks`. That is
the one of the holder "", which is never appended to.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from binascii import crc32
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.records import (
    DamagedRecord,
    JournalNotes,
    JournalPart,
    MissingCharges,
    line_of,
    payload_in,
    payload_of,
    without_foreign_texts,
)
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tollhouse.accounting.types import GenerationRecord

GROWTH_BYTES: Final = 1024 * 1024
"""By how much a file grows; one that was emptied has at least so much."""
SHRINK_BYTES: Final = 4 * GROWTH_BYTES
"""The size from which a file that was emptied shrinks."""
RECORD_BYTES: Final = 1024
"""What a charge takes; most take less."""
SLOT_BYTES: Final = 2048
"""A beginning takes some 600 bytes. What programs say of themselves is left out of a longer one."""
FEWEST_SLOTS: Final = 128
_NAMES: Final = ("a.log", "b.log")
_LOCK: Final = "lock"
_MARK: Final = struct.Struct("<II")
"""Bytes and their CRC-32."""
_MARKS_SIZE: Final = _MARK.size * len(_NAMES)
_EMPTY: Final = b"\0"


@dataclass(frozen=True, slots=True)
class JournalContents:
    """What is in the files of a journal."""

    payloads: Sequence[bytes]
    damaged: Sequence[DamagedRecord]
    missing: Sequence[MissingCharges] = ()
    under_way: Sequence[bytes] = ()
    """Beginnings of requests; those that have a charge are booked by that."""


class MappedFile:
    """A file and its bytes: what is copied there is the kernel's, whoever dies then.

    (A `write` would wait for another thread to give the interpreter back, and for what the database
    has just flushed.) `OSError` says that the disk is full, say, and leaves all as it was.
    """

    def __init__(self, path: Path, size: int) -> None:
        """Make the file if it is missing, with so many bytes at least; new ones are zeros."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.size = os.fstat(self._descriptor).st_size
            self._extend(size)
            self.bytes = mmap.mmap(self._descriptor, self.size)
        except BaseException:
            os.close(self._descriptor)
            raise

    def grow(self, size: int) -> None:
        """Have so many bytes at least."""
        old, had = self.bytes, self.size
        self._extend(size)
        try:
            self.bytes = mmap.mmap(self._descriptor, self.size)
        except BaseException:
            self.size = had
            raise
        old.close()

    def shrink(self, size: int) -> None:
        """Give the room back that is beyond so many bytes."""
        old, self.bytes = self.bytes, mmap.mmap(self._descriptor, size)
        old.close()
        os.ftruncate(self._descriptor, size)
        self.size = size

    def sync(self) -> None:
        """Make what was copied survive a power failure; blocks while the disk writes."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give up the file; what is in it stays there."""
        self.bytes.close()
        os.close(self._descriptor)

    def _extend(self, size: int) -> None:
        """Write zeros: room that is only promised could be missing when it is used."""
        missing = size - self.size
        if missing > 0:
            if os.pwrite(self._descriptor, bytes(missing), self.size) != missing:
                os.ftruncate(self._descriptor, self.size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.size = size


class _File(MappedFile):
    """One file: records from its beginning, zeros from there to its end.

    What it holds is in another file too, the marks: so that one that was emptied from outside is
    noticed. A mark follows the record and goes before the file is emptied, so a kill in between
    leaves more in the file than its mark says, never less. It is written in one piece: it is one
    machine word.
    """

    def __init__(self, folder: Path, name: str, marks: MappedFile) -> None:
        super().__init__(folder / name, GROWTH_BYTES)
        self._name, self._marks = name, marks
        begin = _NAMES.index(name) * _MARK.size
        self._mark = slice(begin, begin + _MARK.size)
        self._used = self._checksum = 0

    @property
    def part(self) -> JournalPart:
        return JournalPart(self._name, self._used, self._checksum)

    @property
    def room(self) -> int:
        """How many more bytes it has room for."""
        return self.size - self._used

    def append(self, line: bytes) -> None:
        begin = self._used
        end = begin + len(line)
        if end > self.size:
            self.grow(end + GROWTH_BYTES)
        self.bytes[begin:end] = line
        self._used, self._checksum = end, crc32(line, self._checksum)
        self._marks.bytes[self._mark] = _MARK.pack(end, self._checksum)

    def reserve(self, size: int) -> None:
        """Have room for so many more bytes."""
        if size > self.room:
            self.grow(self._used + size + GROWTH_BYTES)

    def empty(self) -> None:
        self._marks.bytes[self._mark] = _MARK.pack(0, 0)
        gives_back = self.size > SHRINK_BYTES
        zeros = min(self._used, GROWTH_BYTES) if gives_back else self._used
        self.bytes[:zeros] = bytes(zeros)
        if gives_back:
            self.shrink(GROWTH_BYTES)
        self._used = self._checksum = 0


class RequestsUnderWay:
    """The requests that are at a provider now: a kill that cuts one off leaves a trace of it.

    A provider bills a reply that nobody received any more. So each request leaves a record of its
    beginning here before a provider is asked; its place is free again once its charge is in the
    journal, or once it is known that there is none. What is found here when its process is gone was
    under way when that was killed.

    The file has slots of `SLOT_BYTES`. A beginning is a line as in the journal, in as many adjacent
    slots as it needs; a slot that begins with a zero is free.
    """

    name: Final = "under_way.log"

    def __init__(self, folder: Path) -> None:
        self._path = folder / self.name
        self._file: MappedFile | None = None
        self._free: list[int] = []
        """Where free slots begin."""
        self._slots: dict[str, Sequence[int]] = {}
        """Where those of a generation begin."""

    def __len__(self) -> int:
        """Return how many are there."""
        return len(self._slots)

    def read(self) -> Sequence[bytes]:
        """Return the beginnings that are there: those that a killed process left."""
        data = _read(self._path)
        starts = (at for at in range(0, len(data), SLOT_BYTES) if data[at : at + 1] != _EMPTY)
        # A slot may also hold what comes later in a longer beginning, and one that is not whole
        # was cut off while it was written: nobody was asked yet.
        found = (payload_in(data[at : data.find(b"\n", at) + 1]) for at in starts)
        return [payload for payload in found if payload is not None]

    def reserve(self, requests: int) -> None:
        """Have slots for so many requests together."""
        missing = requests - len(self._slots) - len(self._free)
        if missing > 0:
            self._grow(max(FEWEST_SLOTS, missing + requests // 4))

    def begin(self, record: GenerationRecord) -> None:
        """Keep that a request goes to a provider; a second one takes the place of the first."""
        line = line_of(payload_of(record))
        if len(line) > SLOT_BYTES:
            line = line_of(payload_of(without_foreign_texts(record)))
        if not self._free:
            self.reserve(len(self._slots) + 1)
        if len(line) <= SLOT_BYTES:
            slots: Sequence[int] = (self._free.pop(),)
        else:
            slots = self._adjacent(-(-len(line) // SLOT_BYTES))
        if self._file is not None:
            self._file.bytes[slots[0] : slots[0] + len(line)] = line
        if record.id in self._slots:
            self.end(record.id)
        self._slots[record.id] = slots

    def end(self, generation_id: str) -> None:
        """Free the place of a request; does nothing where it has none."""
        slots = self._slots.pop(generation_id, ())
        if self._file is not None:
            for at in slots:
                self._file.bytes[at] = 0
        self._free.extend(slots)

    def close(self) -> None:
        """Give up the file; what is in it stays there."""
        if self._file is not None:
            self._file.close()
        self._file, self._free, self._slots = None, [], {}

    def _adjacent(self, count: int) -> Sequence[int]:
        """Take so many free slots that lie side by side."""
        free = set(self._free)
        runs = (range(at, at + count * SLOT_BYTES, SLOT_BYTES) for at in sorted(free))
        run = next((each for each in runs if free.issuperset(each)), None) or self._grow(count)
        self._free = [at for at in self._free if at not in run]
        return run

    def _grow(self, slots: int) -> Sequence[int]:
        had = 0 if self._file is None else self._file.size
        size = had + slots * SLOT_BYTES
        if self._file is None:
            self._file = MappedFile(self._path, size)
        else:
            self._file.grow(size)
        new = range(had, size, SLOT_BYTES)
        self._free.extend(new)
        return new


class Journal:
    """A holder's two files that take turns; `OSError` says that the disk is full, say."""

    def __init__(self, root: Path, holder: str) -> None:
        """Touch nothing yet."""
        self.holder = holder
        self.folder = root / holder
        self.notes = JournalNotes(root)
        self.under_way = RequestsUnderWay(self.folder)
        # Not in the folder: it tells that the folder was emptied, too.
        self._marked = marks_of(root) / holder if holder else _old_marks_of(root)
        self._lock: int | None = None
        self._files: list[_File] = []
        self._marks: MappedFile | None = None
        self._active = 0
        self._room = 0
        """Bytes for which each of the files has room, at least."""

    def open(self) -> None:
        """Take the lock, and make the files and their room; `append` does it otherwise."""
        if self._files:
            return
        for each in (self.folder.parent, self.folder, self._marked.parent):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lock is None:
            # It gets its name when it is taken: nobody else takes it before.
            new = self.folder / f"{_LOCK}.new"
            self._take(new)
            new.rename(self.folder / _LOCK)
        with ExitStack() as opened:
            marks = MappedFile(self._marked, _MARKS_SIZE)
            opened.callback(marks.close)
            files: list[_File] = []
            for name in _NAMES:
                files.append(_File(self.folder, name, marks))
                opened.callback(files[-1].close)
            opened.pop_all()
        self._files, self._marks = files, marks

    @property
    def is_open(self) -> bool:
        """Whether charges may be in it."""
        return bool(self._files)

    def append(self, payload: bytes) -> None:
        """Write a record of JSON without line breaks; it survives the end of this process then.

        After an `OSError` nothing of it is left behind.
        """
        if not self._files:
            self.open()
        blocking_failpoint("journal.append.before")
        line = line_of(payload)
        self._files[self._active].append(line)
        self._room -= len(line)
        blocking_failpoint("journal.append.after")

    def reserve(self, charges: int) -> None:
        """Have room for so many more charges, whichever file they will go to."""
        size = charges * RECORD_BYTES
        if size > self._room:
            self.open()
            for file in self._files:
                file.reserve(size)
            self._look_for_room()
        self.under_way.reserve(charges)

    def _look_for_room(self) -> None:
        self._room = min((file.room for file in self._files), default=0)

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
            self._look_for_room()

    def sync(self) -> None:
        """Make every record so far survive a power failure; blocks while the disk writes."""
        for file in self._files:
            file.sync()
        if self._marks is not None:
            self._marks.sync()

    def take(self) -> bool:
        """Take the lock of a journal that was left behind; false while its holder is there.

        The files come after the lock and go before it. So where there are none, and no lock, the
        holder is just about to make it, or all is done; and where the lock alone is gone, as in a
        copy, or the whole folder, nobody is about to.
        """
        lock, marks = self.folder / _LOCK, self._marked
        files = (marks,) if not self.folder.exists() else (self.folder / each for each in _NAMES)
        if not lock.exists() and not any(each.exists() for each in files):
            return False
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._take(lock)

    def read_unbooked(self) -> JournalContents:
        """Return what is not booked: what a process that was killed left behind."""
        payloads: list[bytes] = []
        damaged: list[DamagedRecord] = []
        missing: list[MissingCharges] = []
        marks = _read(self._marked).ljust(_MARKS_SIZE, _EMPTY)
        for each, (used, checksum) in zip(_NAMES, _MARK.iter_unpack(marks), strict=True):
            name, data = f"{self.holder}/{each}".lstrip("/"), _read(self.folder / each)
            found = parse(name, data)
            payloads.extend(found.payloads)
            damaged.extend(found.damaged)
            # A record that a kill cut off is behind the mark.
            if crc32(data[:used]) != checksum:
                missing.append(MissingCharges(name, used, len(data.rstrip(_EMPTY))))
        return JournalContents(payloads, damaged, missing, self.under_way.read())

    def remove(self) -> None:
        """Remove the files, all of which is booked, and the lock as the last one."""
        blocking_failpoint("journal.remove.before")
        self._marked.unlink(missing_ok=True)  # first: files without marks miss nothing
        for name in (*_NAMES, self.under_way.name, _LOCK):
            (self.folder / name).unlink(missing_ok=True)
        if self.holder:
            with suppress(OSError):  # somebody has put something there
                self.folder.rmdir()
        blocking_failpoint("journal.remove.after")
        self.close()

    def close(self) -> None:
        """Give up the files and the lock; what is in them stays there."""
        for file in (*self._files, *([self._marks] if self._marks is not None else [])):
            file.close()
        self._files, self._marks = [], None
        self._look_for_room()
        self.under_way.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self, lock: Path) -> bool:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # somebody has just removed the folder
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another one may have removed it since it was opened.
            is_ours = lock.stat().st_ino == os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        if is_ours:
            self._lock = descriptor
        else:
            os.close(descriptor)
        return is_ours


def journals_in(root: Path) -> Sequence[str]:
    """Return whose journals are in a root, also where of one the marks alone are left."""
    folders = [each.name for each in root.iterdir() if each.is_dir()] if root.exists() else []
    marks = [each.name for each in marks_of(root).iterdir()] if marks_of(root).exists() else []
    old = (_old_marks_of(root), *(root / name for name in _NAMES))
    return sorted({*folders, *marks, *([""] if any(each.exists() for each in old) else [])})


def marks_of(root: Path) -> Path:
    """Return where the marks of the journals in a root are."""
    return root.with_name(f"{root.name}-marks")


def _old_marks_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.marks")


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
