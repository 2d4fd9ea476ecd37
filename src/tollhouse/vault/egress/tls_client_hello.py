"""The first message of TLS: which host a client asks for, before anybody answers it. Pure.

Source: RFC 8446, sections 4.1.2 and 5.1 (ClientHello, records); RFC 6066, section 3 (server name).
"""

from dataclasses import dataclass
from typing import Final

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_RECORD_HEAD: Final = 5
_MOST_RECORDS: Final = 32
"""More than any client makes of it: all are read again with each piece that comes."""
LARGEST: Final = 65_536


class InvalidClientHello(ValueError):
    """The bytes do not begin with a ClientHello."""


def server_name(data: bytes) -> str | None:
    """Return the host name that the first bytes of a connection ask for, as it stands there.

    It is empty where the message has none; None while the message is not complete. Raises
    `InvalidClientHello` where it is no ClientHello, or a broken one.
    """
    message = _message(data)
    if message is None:
        return None
    try:
        return _name_in(_Bytes(message))
    except IndexError:
        raise InvalidClientHello from None


def _message(data: bytes) -> bytes | None:
    """Return the ClientHello without its head, taken out of one or more records."""
    content, at, records = bytearray(), 0, 0
    while len(data) >= at + _RECORD_HEAD:
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        if data[at] != _HANDSHAKE or data[at + 1] != 3 or not 0 < length <= 1 << 14:  # noqa: PLR2004 - TLS 1.x
            raise InvalidClientHello
        content += data[at + _RECORD_HEAD : at + _RECORD_HEAD + length]
        at += _RECORD_HEAD + length
        records += 1
        if records > _MOST_RECORDS:
            raise InvalidClientHello
        if content and content[0] != _CLIENT_HELLO:
            raise InvalidClientHello
        size = int.from_bytes(content[1:4], "big")
        if size > LARGEST:
            raise InvalidClientHello
        if len(content) >= 4 + size and len(content) >= 4:  # noqa: PLR2004 - the message's head
            return bytes(content[4 : 4 + size])
    if data and data[0] != _HANDSHAKE:
        raise InvalidClientHello
    return None


@dataclass(slots=True)
class _Bytes:
    """Reads numbers and byte strings, one after the other; IndexError where there are too few."""

    data: bytes
    at: int = 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise IndexError
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    @property
    def left(self) -> bool:
        return self.at < len(self.data)


def _name_in(hello: _Bytes) -> str:
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # cipher suites
    hello.vector(1)  # compression methods
    if not hello.left:
        return ""
    extensions, found = _Bytes(hello.vector(2)), None
    while extensions.left:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind == _SERVER_NAME:
            if found is not None:
                raise InvalidClientHello
            found = _host_name(_Bytes(_Bytes(content).vector(2)))
    return found or ""


def _host_name(names: _Bytes) -> str:
    kind, name = names.number(1), names.vector(2)
    if kind != _HOST_NAME or names.left:
        raise InvalidClientHello
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidClientHello from None
