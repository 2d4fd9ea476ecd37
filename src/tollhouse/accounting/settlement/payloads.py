"""A charge as the journal has it: a JSON array, with texts that every database takes.

<CRC-32 of the payload as 8 hex digits> <payload>
"""

from __future__ import annotations

from binascii import crc32
from typing import Final

import msgspec

from tollhouse.accounting.types import GenerationRecord

_FOREIGN: Final = (
    *("provider_model", "upstream_id", "native_finish_reason"),
    *("http_referer", "app_title", "user_agent", "external_user", "session_id", "categories"),
    *("trace", "metadata"),
)
"""Texts that callers and providers wrote."""
_NUL: Final = rb"\u0000"
_encode: Final = msgspec.json.Encoder().encode
record_of: Final = msgspec.json.Decoder(GenerationRecord).decode
"""Returns the record of a payload; `msgspec.MsgspecError` where it is none of this version."""


_CHECKSUM_DIGITS: Final = 8
_ID: Final = 1
"""Its place, behind the version."""


def line_of(payload: bytes) -> bytes:
    """Return the line of a payload."""
    return b"%08x %b\n" % (crc32(payload), payload)


def payload_in(line: bytes) -> bytes | None:
    """Return what a line carries; None where it is not as it was written."""
    checksum, _, payload = line.removesuffix(b"\n").partition(b" ")
    whole = line.endswith(b"\n") and len(checksum) == _CHECKSUM_DIGITS
    return payload if whole and checksum == b"%08x" % crc32(payload) else None


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
    return payload if _NUL not in payload else _encode(storable(record))


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
