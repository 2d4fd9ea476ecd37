"""Which part of a file a request wants. Pure.

Source: RFC 9110, sections 13.1.5 and 14.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file, one after another."""

    start: int
    size: int


class Unsatisfiable(Exception):
    """The file has none of the bytes that are wanted."""


def wanted_part(header: str | None, size: int) -> Part | None:
    """Return the part that a request wants.

    Args:
        header: Its `Range`. More than one range at once, and what is no range of bytes, count as
            none: a server may ignore them.
        size: Of the file, in bytes.

    Returns:
        The part; None for all of the file.

    Raises:
        Unsatisfiable: It begins behind the file's end, or is empty.
    """
    match = _RANGE.fullmatch(header.replace(" ", "").lower()) if header else None
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match[1], match[2]
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(int(last) + 1 if last else size, size)
        if last and int(last) < start:
            return None
    if start >= end:
        raise Unsatisfiable
    return Part(start, end - start)
