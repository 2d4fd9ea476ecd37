"""Heads of requests: cut out of bytes, checked for what two readers could read differently. Pure.

`h11` reads the head; what it lets pass in good nature (lines that end with a bare line feed, folded
lines, control characters, a length beside chunks) is refused here before, since the host's own
parser may see another request in it. What goes on to the host is written anew, without the fields
that were for us.

Source: RFC 9112, sections 2.2 (line endings), 5.2 (folding), 6.1 and 11.2 (smuggling); RFC 9110,
sections 5.5 (characters of values) and 7.6.1 (hop-by-hop fields).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tollhouse.vault.egress.refusals import (
    AMBIGUOUS_LENGTH,
    EXTENSION,
    HEAD_TOO_LARGE,
    MALFORMED,
    METHOD,
    Refused,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Field = tuple[bytes, bytes]
"""A header's name, in lower case, and its value."""

LARGEST_HEAD: Final = 65_536
"""Bytes of a head."""
_END: Final = b"\r\n\r\n"
_AMBIGUOUS: Final = re.compile(
    # All begin with one set of bytes, so that `re` passes over the others without trying each.
    rb"[\0-\x08\x0a-\x1f\x7f](?:"
    rb"(?<=\n)(?<!\r\n)|(?<=\r)(?!\n|\Z)|(?<=\r)(?=\n[ \t])|(?<![\r\n]))"
)
"""A line feed alone, a carriage return alone, a folded line, a control character."""
_HOP_BY_HOP: Final = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization"),
        *(b"proxy-authentication-info", b"proxy-connection", b"te", b"trailer"),
        *(b"transfer-encoding", b"upgrade", b"expect"),
    )
)
_NEVER_HOP_BY_HOP: Final = frozenset(
    (
        *(b"host", b"content-length", b"content-encoding", b"content-type"),
        *(b"authorization", b"cookie", b"set-cookie"),
    )
)
_MISTAKEN_FOR: Final = frozenset((b"content_length", b"transfer_encoding"))
"""What some servers read as the field with hyphens."""
_LENGTH: Final = re.compile(rb"0|[1-9][0-9]{0,18}")
_NOT_PASSED_ON: Final = frozenset((b"CONNECT", b"TRACE", b"TRACK"))
_VERSIONS: Final = frozenset((b"1.0", b"1.1"))
_WEBSOCKET: Final = b"websocket"


class HeadReader:
    """Cuts a head out of bytes as they arrive."""

    __slots__ = ("_checked", "_data")

    def __init__(self, data: bytes = b"") -> None:
        """Begin with what was left of the message before."""
        self._data = bytearray(data)
        self._checked = 0

    def feed(self, data: bytes) -> None:
        """Take further bytes."""
        self._data += data

    @property
    def begun(self) -> bool:
        """Whether anything has arrived."""
        return bool(self._data)

    def take(self) -> bytes | None:
        """Return the head with its empty line; None while it is not complete.

        Raises:
            Refused: It is too large, or can be read in more than one way.
        """
        data = self._data
        begin = max(0, self._checked - len(_END) + 1)  # what was looked at before is not again
        end = data.find(_END, begin)
        whole = end >= 0
        size = end + len(_END) if whole else len(data)
        if _AMBIGUOUS.search(data, begin, size) or data.startswith(b"\r"):
            raise Refused(MALFORMED)
        if size > LARGEST_HEAD:
            raise Refused(HEAD_TOO_LARGE)
        if not whole:
            self._checked = size
            return None
        head = bytes(data[:size])
        del data[:size]
        self._checked = 0
        return head

    def rest(self) -> bytes:
        """Return what followed the head, and forget it."""
        data = bytes(self._data)
        self._data.clear()
        self._checked = 0
        return data


def values_of(headers: Iterable[Field], name: bytes) -> list[bytes]:
    """Return the values of a header, in their order."""
    return [value for each, value in headers if each == name]


def check_method(method: bytes) -> None:
    """Make sure that a request has a method that goes on to hosts.

    Raises:
        Refused: It has not.
    """
    if method.upper() in _NOT_PASSED_ON:
        raise Refused(METHOD)


def check_framing(version: bytes, headers: Sequence[Field]) -> None:
    """Make sure that every reader finds the end of a request's body in the same place.

    Raises:
        Refused: One may not.
    """
    if version not in _VERSIONS:
        raise Refused(MALFORMED)
    names = [name for name, _ in headers]
    chunked = b"transfer-encoding" in names
    if chunked and (b"content-length" in names or version != b"1.1"):
        raise Refused(AMBIGUOUS_LENGTH)
    lengths = values_of(headers, b"content-length")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise Refused(AMBIGUOUS_LENGTH)
    if not _MISTAKEN_FOR.isdisjoint(names):
        raise Refused(AMBIGUOUS_LENGTH)


def passed_on(headers: Sequence[Field]) -> list[Field]:
    """Return the fields that are for the other end, of a request or of a response.

    Raises:
        Refused: It names a field as one for us that never is.
    """
    named = {
        token.strip().lower()
        for value in values_of(headers, b"connection")
        for token in value.split(b",")
    }
    if named & _NEVER_HOP_BY_HOP:
        raise Refused(MALFORMED)
    return [field for field in headers if field[0] not in _HOP_BY_HOP and field[0] not in named]


def wants_websocket(method: bytes, headers: Sequence[Field]) -> bool:
    """Tell whether a request asks to go on as a WebSocket; no other upgrade is passed on.

    One with a body does not: some hosts read what follows the head as the new protocol already.

    Source: RFC 6455, section 4.1.
    """
    lengths = set(values_of(headers, b"content-length"))
    if values_of(headers, b"transfer-encoding") or not lengths <= {b"0"}:
        return False
    upgrades = [value.strip().lower() for value in values_of(headers, b"upgrade")]
    tokens = [
        token.strip().lower()
        for value in values_of(headers, b"connection")
        for token in value.split(b",")
    ]
    return method == b"GET" and upgrades == [_WEBSOCKET] and b"upgrade" in tokens


def check_extensions(offered: Iterable[Field], agreed: Iterable[Field]) -> None:
    """Make sure that a host agrees to no more extensions of WebSocket than it was offered.

    Where answers are read for values none is offered: frames that are compressed could hide one,
    and clients may read them though they did not ask.

    Args:
        offered: The fields of the request, as they went to the host.
        agreed: Those of its answer.

    Raises:
        Refused: It names another.

    Source: RFC 6455, sections 4.1 and 9.1.
    """
    if not _extensions(agreed) <= _extensions(offered):
        raise Refused(EXTENSION)


def _extensions(headers: Iterable[Field]) -> frozenset[bytes]:
    """Return the names of extensions, without their parameters."""
    elements = b",".join(values_of(headers, b"sec-websocket-extensions")).split(b",")
    return frozenset(each.partition(b";")[0].strip() for each in elements) - {b""}
