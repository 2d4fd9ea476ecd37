"""Canary values, and a scanner that looks for them in files, databases and replies.

    canaries = [new_canary(at) for at in range(20)]
    ...                                       # a server uses them in every way
    found = Scanner(canaries).in_folder(data_dir) | scanner.in_bytes("replies", replies)

A value counts as found raw, as JSON and a URL escape it, in hex, in base64 (at each of its three
alignments, both alphabets), and any of these inside gzip, zlib or zstd, and in any cell of an
SQLite file, where a long row is in pieces.
"""

import base64
import gzip
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, quote_plus

from tollhouse.interns.workspaces.tree import extents
from tollhouse.kernel.files import zstd

MOST_UNPACKED = 8 * 1024 * 1024
"""Bytes of a file in which compressed data is looked for."""
_PROBED = 4096
"""Bytes that tell compressed data from data that only begins like it."""
_SQLITE = b"SQLite format 3\0"
_PACKED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda", b"\x28\xb5\x2f\xfd")


def new_canary(number: int, kind: str = "canary") -> str:
    """Return a random value with characters that encodings change."""
    drawn = sha256(f"{kind} {number}".encode()).hexdigest()[:24]
    return f'cnry-{drawn}/+"{number}'


def encodings(canary: str) -> set[bytes]:
    """Return the encodings in which a value may be stored."""
    raw = canary.encode()
    found = {raw, json.dumps(canary)[1:-1].encode(), quote(canary).encode()}
    found |= {quote(canary, safe="").encode(), quote_plus(canary).encode()}
    found |= {raw.hex().encode(), raw.hex().upper().encode()}
    for before in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * before + raw)
            # What its neighbours have a part in is left out.
            found.add(text[4 if before else 0 : len(text) // 4 * 4 - 4])
    return found


PLANTED = [new_canary(at) for at in range(50)]
"""What the tests store as values of secrets. At the end of a whole run none may be in any file that
its servers and programs have written; tests that prove the scanner use others."""


PROVIDER_KEY = new_canary(0, "provider key").partition("/")[0]
"""The key with which servers of the tests call fake providers, from their environment. It has only
characters that JSON does not escape."""
PROVIDER_KEY_NAME = "STAND_IN_KEY"


_BEGINNINGS = (b"cnry-", b"636e72792d", b"636E72792D", b"Y25yeS", b"Nucnkt", b"jbnJ5L")
"""What every encoding of every canary begins with; few files contain any of it."""


class Scanner:
    """Looks for canaries."""

    def __init__(self, canaries: Sequence[str]) -> None:
        self._needles = {canary: encodings(canary) for canary in canaries}

    def in_bytes(self, place: str, content: bytes) -> set[tuple[str, str]]:
        """Return the places and canaries that were found."""
        packed = _unpacked(content) if len(content) <= MOST_UNPACKED else ()
        return {
            (place, canary)
            for each in (content, *packed)
            if any(begin in each for begin in _BEGINNINGS)
            for canary, needles in self._needles.items()
            if any(needle in each for needle in needles)
        }

    def in_folder(self, folder: Path) -> set[tuple[str, str]]:
        """Do the same for every file below a folder and every cell of its databases."""
        found: set[tuple[str, str]] = set()
        for path in folder.rglob("*"):
            if path.is_file():
                found |= self.in_file(path)
        return found

    def in_file(self, path: Path) -> set[tuple[str, str]]:
        """Do the same for one file, and for every cell if it is a database."""
        content = _written(path)
        found = self.in_bytes(path.name, content)
        if content.startswith(_SQLITE):
            for cell in _cells(path):
                found |= self.in_bytes(f"{path.name}, a cell", cell)
        return found


def _written(path: Path) -> bytes:
    """Return a file's content without its holes, which some tests make large."""
    with path.open("rb") as file:
        number = file.fileno()
        pieces = extents(number, os.fstat(number).st_size)
        return b"".join(os.pread(number, end - begin, begin) for begin, end in pieces)


def _unpacked(content: bytes) -> Iterator[bytes]:
    view = memoryview(content)  # of random bytes, a slice for each chance hit would be copied
    for magic in _PACKED:
        at = content.find(magic)
        while at >= 0:
            with suppress(zlib.error, zstd.ZstdError, EOFError, gzip.BadGzipFile):
                yield _opened(magic, view[at:])
            at = content.find(magic, at + 1)


def _opened(magic: bytes, content: memoryview) -> bytes:
    if magic == _PACKED[-1]:
        return zstd.ZstdDecompressor().decompress(content)
    opened = zlib.decompressobj(31 if magic == _PACKED[0] else 15)
    begin = opened.decompress(content[:_PROBED])  # fails here, if it is not compressed data
    return begin + opened.decompress(content[_PROBED:])


def _cells(path: Path) -> Iterator[bytes]:
    """Return the cells of the tables in which there may be anything."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            cells = [
                cell.encode() if isinstance(cell, str) else cell
                for row in connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - our own
                for cell in row
                if isinstance(cell, str | bytes)
            ]
            together = b"\0".join(cells)
            if any(begin in together for begin in (*_BEGINNINGS, *_PACKED)):
                yield from cells
