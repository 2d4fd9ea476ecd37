"""The books process: it reads charges from the journal and writes them to the database.

It keeps nothing between two groups: the server says where a group is, and empties the file once the
group is booked. A group that is booked again, because one of the two was killed in between, changes
nothing. `sqlite_writer` or `postgresql_writer` is run, and imports no more than its database needs.

What the two say to each other, each on a channel of its own:

    Open                    first: which database, and where the journal is
    BookFile, BookCharges   one group of charges after the other; Release once all of a holder's are
                            booked; and for each
    Booked, NotBooked       what became of it; or
    Unreadable              the file does not hold what the server wrote into it
"""

from __future__ import annotations

import os
import signal
import sys
from binascii import crc32
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tollhouse.accounting.settlement.booking import Unbookable
from tollhouse.accounting.settlement.records import CHECKSUM_BYTES, record_of
from tollhouse.kernel.channel import Channel, ChannelClosed
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.types import GenerationRecord

LARGEST_TRANSACTION: Final = 1_000
"""Charges that are booked in one transaction."""
_LARGEST: Final = 1024 * 1024 * 1024
"""Bytes of a message: as many charges as ever wait, each as long as callers can make it."""


class Open(msgspec.Struct, tag="open", frozen=True):
    """Where the books and the journal are."""

    database: str
    """The path of an SQLite file, or a URL for PostgreSQL: with its password, so it is no argument
    of the process, and not shown."""
    journal: str
    holder: str
    """Whose charges these are: a server's, from its start to its end."""

    def __repr__(self) -> str:
        """Show no password."""
        return f"{type(self).__name__}(journal={self.journal!r})"


class BookFile(msgspec.Struct, tag="file", frozen=True):
    """Book what is at the beginning of a file of the journal."""

    name: str
    size: int
    """How many bytes of it."""
    checksum: int
    """Their CRC-32."""
    first: int
    """The number of the first of its charges; those of a holder are numbered from 1 on."""


class BookCharges(msgspec.Struct, tag="charges", frozen=True):
    """Book these charges."""

    payloads: list[bytes]
    first: int = 0
    """The number of the first one; 0 where they have none: an earlier holder left them."""

    def __repr__(self) -> str:
        """Show how many, and nothing that they hold."""
        return f"{type(self).__name__}({len(self.payloads)} charges)"


class Release(msgspec.Struct, tag="release", frozen=True):
    """End a holder, which may be another one than this server."""

    holder: str


class SetAside(msgspec.Struct, frozen=True):
    """A charge that no database state would take."""

    payload: bytes
    reason: str
    """The name of an error; its text may quote the charge."""

    def __repr__(self) -> str:
        """Show nothing that it holds."""
        return f"{type(self).__name__}(reason={self.reason!r})"


class Booked(msgspec.Struct, tag="booked", frozen=True):
    """The group is in the books, apart from these; or a holder was released."""

    set_aside: list[SetAside]


class NotBooked(msgspec.Struct, tag="not_booked", frozen=True):
    """The database cannot be written; a part of the group may be in the books."""

    reason: str
    """The name of an error."""


class Unreadable(msgspec.Struct, tag="unreadable", frozen=True):
    """The file is gone, or was changed from outside; nothing was booked."""


ToBooks = Open | BookFile | BookCharges | Release
FromBooks = Booked | NotBooked | Unreadable
TO_BOOKS: Final[Channel[ToBooks]] = Channel(ToBooks, largest=_LARGEST)
FROM_BOOKS: Final[Channel[FromBooks]] = Channel(FromBooks, largest=_LARGEST)


class Writer(Protocol):
    """Writes to the database, each time in one transaction."""

    def write(self, records: Sequence[GenerationRecord], last: int) -> None:
        """Book charges; those already booked change nothing.

        It notes that of their holder all up to the number of the last one are booked; 0: they have
        no numbers.

        Raises:
            Unbookable: One of them cannot be stored, whatever the state of the database.
            Exception: The database cannot be reached or written. As before, nothing is booked.
        """

    def release(self, holder: str) -> None:
        """End a holder: see `booking.releasing`."""


class Books:
    """Books groups of charges."""

    def __init__(self, writer: Writer, journal: Path) -> None:
        self._writer = writer
        self._journal = journal

    def answer(self, message: ToBooks) -> FromBooks:
        """Do what the server asks for."""
        try:
            match message:
                case BookCharges(payloads, first):
                    return self._book_all(payloads, first)
                case BookFile(name, size, checksum, first):
                    payloads = _payloads(self._journal / name, size, checksum)
                    return Unreadable() if payloads is None else self._book_all(payloads, first)
                case Release(holder):
                    blocking_failpoint("books.release.before")
                    self._writer.release(holder)
                    blocking_failpoint("books.release.after")
                    return Booked([])
                case Open():
                    return NotBooked("it is open")
        except Exception as error:  # noqa: BLE001 - the edge: whatever it was, the server tries again
            return NotBooked(type(error).__name__)

    def _book_all(self, payloads: Sequence[bytes], first: int) -> Booked:
        """Book charges, numbered from `first` on, and tell which of them never can be."""
        blocking_failpoint("books.read")
        set_aside: list[SetAside] = []
        for start in range(0, len(payloads), LARGEST_TRANSACTION):
            part = payloads[start : start + LARGEST_TRANSACTION]
            self._book(part, set_aside, first and first + start)
        return Booked(set_aside)

    def _book(self, payloads: Sequence[bytes], set_aside: list[SetAside], first: int) -> None:
        last = first and first + len(payloads) - 1
        try:
            blocking_failpoint("books.write.before")
            self._writer.write(list(map(record_of, payloads)), last)
            blocking_failpoint("books.write.after")
        except (Unbookable, msgspec.MsgspecError) as error:
            if len(payloads) > 1:
                for place, payload in enumerate(payloads):
                    self._book([payload], set_aside, first and first + place)
                return
            self._writer.write([], last)
            set_aside.append(SetAside(payloads[0], type(error.__cause__ or error).__name__))


def _payloads(path: Path, size: int, checksum: int) -> Sequence[bytes] | None:
    """Return the charges at the beginning of a file; None where it is not as it was written."""
    try:
        with path.open("rb") as file:
            data = file.read(size)
    except OSError:
        return None
    if crc32(data) != checksum:
        return None
    return [line[CHECKSUM_BYTES:] for line in data.splitlines()]


def serve(writer: Callable[[str, str], Writer]) -> None:
    """Answer the server until it is gone, and end at once: nothing is left to tidy up.

    `writer` makes one for a database and a holder.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        begin = TO_BOOKS.receive_blocking(source)
        if isinstance(begin, Open):
            books = Books(writer(begin.database, begin.holder), Path(begin.journal))
            while True:
                answer = books.answer(TO_BOOKS.receive_blocking(source))
                blocking_failpoint("books.answer.after")
                FROM_BOOKS.send_blocking(sink, answer)
    except (ChannelClosed, BrokenPipeError):
        os._exit(0)
    os._exit(1)
