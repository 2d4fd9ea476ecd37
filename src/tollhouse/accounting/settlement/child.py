"""The books process: it reads charges from the journal and writes them to the database.

`messages` says what is on its standard streams. It keeps nothing between two groups: the server
says where a group is, and empties the file once the group is booked. A group that is booked again,
because one of the two was killed in between, changes nothing.

It is `sqlite_child` or `postgresql_child`, which import no more than their database needs.
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
from tollhouse.accounting.settlement.messages import (
    FROM_BOOKS,
    TO_BOOKS,
    BookCharges,
    Booked,
    BookFile,
    NotBooked,
    Open,
    Release,
    SetAside,
    Unreadable,
)
from tollhouse.accounting.settlement.payloads import record_of
from tollhouse.kernel.channel import ChannelClosed
from tollhouse.kernel.failpoints import blocking_failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.settlement.messages import FromBooks, ToBooks
    from tollhouse.accounting.types import GenerationRecord


class Writer(Protocol):
    """Writes to the database, each time in one transaction."""

    def write(self, records: Sequence[GenerationRecord], last: int) -> None:
        """Book charges, and note the number of the last one; 0: they have none.

        Raises:
            Unbookable: One of them cannot be stored, whatever the state of the database.
        """

    def release(self, holder: str) -> None:
        """End a holder: nothing is spent in its name from now on, and what it was granted is free.

        All of its charges are booked, and its process is gone or admits nothing more. Doing it
        again changes nothing that counts.
        """


LARGEST_TRANSACTION: Final = 1_000
"""Charges that are booked in one transaction."""
_CHECKSUM_BYTES: Final = len(b"00000000 ")
"""What stands before a payload in its line of the journal."""


class Books:
    """Books groups of charges."""

    def __init__(self, writer: Writer, journal: Path) -> None:
        self._writer = writer
        self._journal = journal

    def answer(self, message: ToBooks) -> FromBooks:
        """Do what the server asks for."""
        match message:
            case BookCharges(payloads, first):
                return self.book(payloads, first)
            case BookFile(name, size, checksum, first):
                payloads = _payloads(self._journal / name, size, checksum)
                return Unreadable() if payloads is None else self.book(payloads, first)
            case Release(holder):
                return self._release(holder)
            case Open():
                return NotBooked("it is open")

    def book(self, payloads: Sequence[bytes], first: int = 0) -> FromBooks:
        """Book charges, numbered from `first` on, and tell which of them never can be."""
        blocking_failpoint("books.read")
        set_aside: list[SetAside] = []
        try:
            for start in range(0, len(payloads), LARGEST_TRANSACTION):
                part = payloads[start : start + LARGEST_TRANSACTION]
                self._book(part, set_aside, first and first + start)
        except Exception as error:  # noqa: BLE001 - the edge: whatever it was, the server tries again
            return NotBooked(type(error).__name__)
        return Booked(set_aside)

    def _release(self, holder: str) -> FromBooks:
        try:
            blocking_failpoint("books.release.before")
            self._writer.release(holder)
            blocking_failpoint("books.release.after")
        except Exception as error:  # noqa: BLE001 - the edge: as above
            return NotBooked(type(error).__name__)
        return Booked([])

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
    return [line[_CHECKSUM_BYTES:] for line in data.splitlines()]


def serve(open_database: Callable[[Open], Writer]) -> None:
    """Answer the server until it is gone, and end at once: nothing is left to tidy up."""
    for number in (signal.SIGINT, signal.SIGTERM):  # are for the gateway, which may need time
        signal.signal(number, signal.SIG_IGN)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        begin = TO_BOOKS.receive_blocking(source)
        if isinstance(begin, Open):
            books = Books(open_database(begin), Path(begin.journal))
            while True:
                answer = books.answer(TO_BOOKS.receive_blocking(source))
                blocking_failpoint("books.answer.after")
                FROM_BOOKS.send_blocking(sink, answer)
    except (ChannelClosed, BrokenPipeError):
        os._exit(0)
    os._exit(1)
