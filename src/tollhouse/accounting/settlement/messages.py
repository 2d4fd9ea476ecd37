"""What the server and the books process say to each other, each on a channel of its own.

Open                    first: which database, and where the journal is
BookFile, BookCharges   one group of charges after the other; Release once all of a holder's are
                        booked; and for each
Booked, NotBooked       what became of it; or
Unreadable              the file does not hold what the server wrote into it
"""

from __future__ import annotations

from typing import Final

import msgspec

from tollhouse.kernel.channel import Channel

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
