"""The books process: it reads charges from the journal and writes them to the database.

It keeps nothing between two groups: the server says where a group is, and empties the file once the
group is booked. A group that is booked again, because one of the two was killed in between, changes
nothing.

It is run as `sqlite` or `postgresql`, which import no more than their database needs.
"""

from __future__ import annotations

import os
import signal
import sys
from binascii import crc32
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tollhouse.accounting.settlement.booking import Unbookable, booking, releasing
from tollhouse.accounting.settlement.records import CHECKSUM_BYTES, JournalPart, record_of
from tollhouse.kernel.channel import Channel, ChannelClosed
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.settlement.booking import Dialect, Steps

LARGEST_TRANSACTION: Final = 1_000
"""Charges that are booked in one transaction."""


class Message(msgspec.Struct, frozen=True):
    """What the server and the books process say to each other; it holds passwords and charges."""

    def __repr__(self) -> str:
        """Show nothing that it holds."""
        return f"{type(self).__name__}()"


class Open(Message, tag="open", frozen=True):
    """The first one: where the books and the journal are."""

    database: str
    """The path of an SQLite file, or a URL for PostgreSQL: with its password, so it is no argument
    of the process."""
    journal: str
    holder: str
    """Whose charges these are: a server's, from its start to its end."""


class BookFile(Message, tag="file", frozen=True):
    """Book what is at the beginning of a file of the journal."""

    part: JournalPart
    first: int
    """The number of the first of its charges; those of a holder are numbered from 1 on."""


class BookCharges(Message, tag="charges", frozen=True):
    """Book these charges."""

    payloads: list[bytes]
    first: int = 0
    """The number of the first one; 0 where they have none: an earlier holder left them."""


class Release(Message, tag="release", frozen=True):
    """End a holder, which may be another one than this server: see `booking.releasing`."""

    holder: str


class SetAside(Message, frozen=True):
    """A charge that no database state would take."""

    payload: bytes
    reason: str
    """The name of an error; its text may quote the charge."""


class Booked(Message, tag="booked", frozen=True):
    """The group is in the books, apart from these; or a holder was released."""

    set_aside: list[SetAside]


class NotBooked(Message, tag="not_booked", frozen=True):
    """The database cannot be written; a part of the group may be in the books."""

    reason: str
    """The name of an error."""


class Unreadable(Message, tag="unreadable", frozen=True):
    """The file is gone, or was changed from outside; nothing was booked."""


ToBooks = Open | BookFile | BookCharges | Release
FromBooks = Booked | NotBooked | Unreadable
_LARGEST: Final = 1024 * 1024 * 1024
"""Bytes of a message: as many charges as ever wait, each as long as callers can make it."""
TO_BOOKS: Final[Channel[ToBooks]] = Channel(ToBooks, largest=_LARGEST)
FROM_BOOKS: Final[Channel[FromBooks]] = Channel(FromBooks, largest=_LARGEST)


class Driver(Protocol):
    """A database."""

    dialect: Dialect

    def run(self, steps: Callable[[], Steps]) -> None:
        """Do steps in one transaction, from the first one on if it has to be tried again.

        Raises:
            Unbookable: A charge cannot be stored, whatever the state of the database.
            Exception: The database cannot be reached or written.
        """


class Books:
    """Books groups of charges of a holder, and others that were left behind."""

    def __init__(self, driver: Driver, journal: Path, holder: str) -> None:
        self._driver = driver
        self._journal = journal
        self._holder = holder

    def answer(self, message: ToBooks) -> FromBooks:
        """Do what the server asks for."""
        try:
            match message:
                case BookCharges(payloads, first):
                    return self._book_all(payloads, first)
                case BookFile(part, first):
                    read = _payloads(self._journal / part.name, part)
                    return Unreadable() if read is None else self._book_all(read, first)
                case Release(holder):
                    blocking_failpoint("books.release.before")
                    self._driver.run(lambda: releasing(self._driver.dialect, holder))
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
            self._write(payloads, last)
            blocking_failpoint("books.write.after")
        except (Unbookable, msgspec.MsgspecError) as error:
            if len(payloads) > 1:
                for place, payload in enumerate(payloads):
                    self._book([payload], set_aside, first and first + place)
                return
            self._write([], last)
            set_aside.append(SetAside(payloads[0], type(error.__cause__ or error).__name__))

    def _write(self, payloads: Sequence[bytes], last: int) -> None:
        records = list(map(record_of, payloads))
        self._driver.run(lambda: booking(self._driver.dialect, records, self._holder, last))


def _payloads(path: Path, part: JournalPart) -> Sequence[bytes] | None:
    """Return the charges at the beginning of a file; None where it is not as it was written."""
    try:
        with path.open("rb") as file:
            data = file.read(part.size)
    except OSError:
        return None
    is_whole = crc32(data) == part.checksum
    return [line[CHECKSUM_BYTES:] for line in data.splitlines()] if is_whole else None


def serve(driver: Callable[[str], Driver]) -> None:
    """Answer the server until it is gone, and end at once: nothing is left to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        begin = TO_BOOKS.receive_blocking(source)
        if isinstance(begin, Open):
            books = Books(driver(begin.database), Path(begin.journal), begin.holder)
            while True:
                answer = books.answer(TO_BOOKS.receive_blocking(source))
                blocking_failpoint("books.answer.after")
                FROM_BOOKS.send_blocking(sink, answer)
    except (ChannelClosed, BrokenPipeError):
        os._exit(0)
    os._exit(1)
