"""Heads of requests: cut out of bytes, checked for what two readers could read differently. Pure.

`h11` reads the head; what it lets pass in good nature (lines that end with a bare line feed, folded
lines, control characters, a length beside chunks) is refused here before, since the host's own
parser may see another request in it. What goes on to the host is written anew, without the fields
that were for us.

Source: RFC 9112, sections 2.2 (line endings), 5.2 (folding), 6.1 and 11.2 (smuggling); RFC 9110,
sections 5.5 (characters of values) and 7.6.1 (hop-by-hop fields).
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tollhouse.kernel.hosts import HostNameProblem, InvalidHostName, normal_host
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.rejections import Rejected

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
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-authentication-info "
    b"proxy-connection te trailer transfer-encoding upgrade expect".split()
)
_NEVER_HOP_BY_HOP: Final = frozenset(
    b"host content-length content-encoding content-type authorization cookie set-cookie".split()
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

        Raises `Rejected` where it is too large, or can be read in more than one way.
        """
        data = self._data
        begin = max(0, self._checked - len(_END) + 1)  # what was looked at before is not again
        end = data.find(_END, begin)
        whole = end >= 0
        size = end + len(_END) if whole else len(data)
        if _AMBIGUOUS.search(data, begin, size) or data.startswith(b"\r"):
            raise Rejected(rejections.MALFORMED)
        if size > LARGEST_HEAD:
            raise Rejected(rejections.HEAD_TOO_LARGE)
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
    """Refuse a method that does not go on to hosts (`Rejected`)."""
    if method.upper() in _NOT_PASSED_ON:
        raise Rejected(rejections.METHOD)


def check_framing(version: bytes, headers: Sequence[Field]) -> None:
    """Refuse a request whose end some reader may find in another place (`Rejected`)."""
    if version not in _VERSIONS:
        raise Rejected(rejections.MALFORMED)
    names = [name for name, _ in headers]
    chunked = b"transfer-encoding" in names
    if chunked and (b"content-length" in names or version != b"1.1"):
        raise Rejected(rejections.AMBIGUOUS_LENGTH)
    lengths = values_of(headers, b"content-length")
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise Rejected(rejections.AMBIGUOUS_LENGTH)
    if not _MISTAKEN_FOR.isdisjoint(names):
        raise Rejected(rejections.AMBIGUOUS_LENGTH)


def passed_on(headers: Sequence[Field]) -> list[Field]:
    """Return the fields that are for the other end, of a request or of a response.

    Raises `Rejected` where one that never is for us is named as such.
    """
    named = _connection_tokens(headers)
    if named & _NEVER_HOP_BY_HOP:
        raise Rejected(rejections.MALFORMED)
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
    asks = upgrades == [_WEBSOCKET] and b"upgrade" in _connection_tokens(headers)
    return method == b"GET" and asks


def _connection_tokens(headers: Iterable[Field]) -> set[bytes]:
    tokens = b",".join(values_of(headers, b"connection")).split(b",")
    return {token.strip().lower() for token in tokens}


def check_extensions(offered: Iterable[Field], agreed: Iterable[Field]) -> None:
    """Refuse extensions of WebSocket that a host was not offered (`Rejected`).

    Where answers are read for values none is offered: frames that are compressed could hide one,
    and clients may read them though they did not ask.

    Source: RFC 6455, sections 4.1 and 9.1.
    """
    if not _extensions(agreed) <= _extensions(offered):
        raise Rejected(rejections.EXTENSION)


def _extensions(headers: Iterable[Field]) -> frozenset[bytes]:
    elements = b",".join(values_of(headers, b"sec-websocket-extensions")).split(b",")
    return frozenset(each.partition(b";")[0].strip() for each in elements) - {b""}


HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
_MOST: Final = 65_535
_PORT: Final = re.compile(r"[0-9]{1,5}")
_ABSOLUTE: Final = re.compile(rb"(?i:http)://([^/?#@]*)([/?].*)?")
_LITERAL: Final = re.compile(r"\[.*\](:[0-9]*)?")


class Target(NamedTuple):
    """A host and a port of it."""

    host: str
    """As `kernel.hosts` writes it."""
    port: int


def connect_target(target: bytes) -> Target:
    """Return where a CONNECT leads; raises `Rejected` where its target is not `name:port`."""
    return _target(target, None)


def absolute_target(target: bytes) -> tuple[Target, bytes]:
    """Return where a request outside a tunnel leads, and its path with the query.

    Raises `Rejected` where it is no `http:` URL with a host name.
    """
    match = _ABSOLUTE.fullmatch(target)
    if match is None or b"#" in target:
        raise Rejected(rejections.MALFORMED)
    path = match[2] or b"/"
    return _target(match[1], HTTP_PORT), path if path.startswith(b"/") else b"/" + path


def check_origin_form(target: bytes) -> None:
    """Refuse a target that is no path (`Rejected`)."""
    if not target.startswith(b"/") or b"#" in target:
        raise Rejected(rejections.NOT_ORIGIN_FORM)


def check_host(hosts: list[bytes], target: Target, default_port: int) -> None:
    """Refuse Host headers that do not name, once, where the request goes (`Rejected`)."""
    if len(hosts) != 1:
        raise Rejected(rejections.ONE_HOST)
    if _target(hosts[0], default_port) != target:
        raise Rejected(rejections.HOST_DISAGREES)


def host_header(target: Target, default_port: int) -> bytes:
    """Return how a request names the host that it goes to."""
    port = "" if target.port == default_port else f":{target.port}"
    return f"{target.host}{port}".encode()


def _target(authority: bytes, default_port: int | None) -> Target:
    try:
        text = authority.decode("ascii")
    except UnicodeDecodeError:
        raise Rejected(rejections.MALFORMED) from None
    if _LITERAL.fullmatch(text):
        raise Rejected(rejections.NOT_A_NAME)
    name, colon, digits = text.partition(":")
    try:
        host = normal_host(name)
    except InvalidHostName as error:
        raise Rejected(
            rejections.NOT_A_NAME if error.why is HostNameProblem.ADDRESS else rejections.MALFORMED
        ) from None
    port = _port(digits) if colon else default_port
    if port is None:
        raise Rejected(rejections.MALFORMED)
    return Target(host, port)


def _port(digits: str) -> int | None:
    return int(digits) if _PORT.fullmatch(digits) and 1 <= int(digits) <= _MOST else None
