"""A charge as the journal has it: a line of JSON, with texts that every database takes.

<CRC-32 of the payload as 8 hex digits> <payload>

What a person is to look at is in files beside the journals, the same for all of them. They are
appended to, and taken away by that person:

    <root>/unbookable.log   charges that no database would take
    <root>/damaged.log      what was found in a journal and is no record, as it was
    <root>/missing.log      that charges were gone from a journal: a file was emptied, or replaced
"""

from __future__ import annotations

import os
import re
from binascii import crc32
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.types import GenerationRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_FOREIGN: Final = (
    *("provider_model", "upstream_id", "native_finish_reason"),
    *("http_referer", "app_title", "user_agent", "external_user", "session_id", "categories"),
    *("trace", "metadata"),
)
"""Texts that callers and providers wrote."""
_MISSING: Final = "missing.log"
_NUL: Final = re.compile(rb"\\u0000")
"""U+0000 as JSON has it. To search for it with `in` takes twice as long."""
_encode: Final = msgspec.json.Encoder().encode
record_of: Final = msgspec.json.Decoder(GenerationRecord).decode
"""Returns the record of a payload; `msgspec.MsgspecError` where it is none of this version."""
CHECKSUM_BYTES: Final = len(b"00000000 ")
"""What stands before a payload in its line."""
_ID: Final = 1
"""Its place, behind the version."""


def line_of(payload: bytes) -> bytes:
    """Return the line of a payload."""
    return b"%08x %b\n" % (crc32(payload), payload)


def payload_in(line: bytes) -> bytes | None:
    """Return what a line carries; None where it is not as it was written."""
    payload = line[CHECKSUM_BYTES:-1]
    return payload if line == line_of(payload) else None


def id_of(payload: bytes) -> str | None:
    """Return whose generation a payload is, also of one that is no record; None for nobody's."""
    try:
        return str(msgspec.json.decode(payload)[_ID])
    except (msgspec.DecodeError, LookupError, TypeError):
        return None


def payload_of(record: GenerationRecord) -> bytes:
    """Return what the journal has of a record."""
    try:
        payload = _encode(record)
    except UnicodeEncodeError:
        # Half of a surrogate pair, from a client or a provider: hardly ever, so looked for last.
        return _encode(storable(record))
    return payload if _NUL.search(payload) is None else _encode(storable(record))


def without_foreign_texts(record: GenerationRecord) -> GenerationRecord:
    """Return a record without what callers and providers wrote, which may be long."""
    return msgspec.structs.replace(record, **dict.fromkeys(_FOREIGN))


def storable(record: GenerationRecord) -> GenerationRecord:
    """Return a record whose foreign texts are ones that a database and JSON can hold."""
    changed = {
        name: _storable(text)
        for name in _FOREIGN
        if (text := getattr(record, name)) is not None and (not text.isascii() or "\0" in text)
    }
    return msgspec.structs.replace(record, **changed) if changed else record


def _storable(text: str) -> str:
    """Return a foreign text without what a database refuses: U+0000 and halves of surrogates."""
    whole = text.encode("utf-8", "replace").decode()
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """Bytes of a journal that are no record."""

    file: str
    """Its path from the journals' root."""
    offset: int
    data: bytes = field(repr=False)
    is_tail: bool
    """Whether they are the file's last: a record that a kill cut off, of a reply that never left
    whole."""


@dataclass(frozen=True, slots=True)
class MissingCharges:
    """Charges that a file of a journal had, and has no more."""

    file: str
    """Its path from the journals' root."""
    expected: int
    """Bytes that were written into it."""
    found: int


class JournalPart(msgspec.Struct, frozen=True):
    """The beginning of a file of the journal: a group of charges."""

    name: str
    size: int
    checksum: int
    """The CRC-32 of its bytes."""


class JournalNotes:
    """Appends to the files; several processes may at once."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def quarantine(self, payload: bytes) -> None:
        """Keep a record that cannot be booked, so that its file may be emptied."""
        self._keep("unbookable.log", line_of(payload))

    def keep_damaged(self, damaged: Iterable[DamagedRecord]) -> None:
        """Keep what is no record."""
        self._keep("damaged.log", b"".join(each.data + b"\n" for each in damaged))

    def keep_missing(self, missing: Iterable[MissingCharges]) -> None:
        """Note that charges are gone, until a person takes the note away."""
        lines = (f"{each.file} {each.expected} {each.found}\n" for each in missing)
        self._keep(_MISSING, "".join(lines).encode())

    def missing(self) -> Sequence[MissingCharges]:
        """Return what `keep_missing` noted."""
        path = self._root / _MISSING
        lines = path.read_text().splitlines() if path.exists() else []
        each = map(str.split, lines)
        return [MissingCharges(file, int(expected), int(found)) for file, expected, found in each]

    def _keep(self, name: str, data: bytes) -> None:
        if not data:
            return
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._root / name, flags, 0o600), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
