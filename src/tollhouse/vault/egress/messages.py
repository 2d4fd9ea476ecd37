"""What the gateway and its proxy say to each other, over a pair of sockets that both inherit.

    gateway                         proxy
       │  Begin ───────────────────▶ │    once: limits, destinations, where the gateway is
       │  Open + a listening socket ▶│    a session; its socket says who it is
       │ ◀──────────────────── Opened│    its certificate authority, to be trusted by the client
       │ ◀──────── AskBound, AskRelease, AskLapsed
       │  Bound, Values, Withheld, Lapsed ▶│    each to the question of its number
       │  Close ───────────────────▶ │

Each is JSON behind its length in 4 bytes. The sockets of sessions come on a second pair, one
message each, since a descriptor belongs to a message. Values stand in `Values` alone, which goes
from one process to the other and nowhere else.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import asyncio

LARGEST_OPEN: Final = 65_536
"""Bytes of an `Open`."""
LARGEST_FRAME: Final = 1 << 26
"""Bytes of any other message."""
_SIZE: Final = struct.Struct(">I")


class Limits(msgspec.Struct, frozen=True):
    """What one session may use; see `EgressSettings`."""

    connections: int
    idle_seconds: float
    total_seconds: float
    bytes_per_minute: int


class Begin(msgspec.Struct, tag="begin"):
    """Everything that holds for all sessions."""

    gateway: tuple[str, int]
    """Where the gateway listens: host and port."""
    routes: list[str]
    """Paths that sessions may ask the gateway for."""
    limits: Limits
    tunnel_hosts: list[str] = []
    """Hosts whose TLS is passed on unread, without secrets."""
    allow_networks: list[str] = []
    """Networks that are no one's but may be called."""
    addresses: dict[str, str] = {}
    """Addresses of names that no name server is asked for."""
    authorities: str | None = None
    """Certificates of further authorities, as PEM."""
    allow_ports: list[str] = []
    """Where hosts receive secrets beside port 443, as host:port."""


class Open(msgspec.Struct, tag="open"):
    """A session begins; its listening socket comes with it."""

    session: str
    key: str | None
    """The API key with which it reaches the gateway."""
    password: str | None
    """What clients have to show; None where whoever reaches the socket may use it."""
    plain_http: bool
    """Whether hosts without secrets may be reached without TLS."""
    reads: list[str] = []
    """Paths of the gateway that it may read, besides the routes that every session has."""

    def __repr__(self) -> str:
        """Tell nothing of the key."""
        return f"Open({self.session})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Tell nothing of the key to whoever prints in colours either."""
        return [("session", self.session)]


class Close(msgspec.Struct, tag="close"):
    """A session ends, with every connection of it."""

    session: str


class Opened(msgspec.Struct, tag="opened"):
    """A session is there."""

    session: str
    certificate: str
    """Of its authority, as PEM."""


class AskBound(msgspec.Struct, tag="ask_bound"):
    """Is a secret of a session bound to a host?"""

    number: int
    session: str
    host: str


class Bound(msgspec.Struct, tag="bound"):
    """The answer."""

    number: int
    bound: bool


class AskRelease(msgspec.Struct, tag="ask_release"):
    """The values of some names, for a request to a host."""

    number: int
    session: str
    host: str
    names: list[str]


class Value(msgspec.Struct):
    """A value that is released."""

    name: str
    value: str
    vault_id: str
    version: int

    def __repr__(self) -> str:
        """Tell nothing of the value."""
        return f"Value({self.name})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """Tell nothing of the value to whoever prints in colours either."""
        return [("name", self.name)]


class Values(msgspec.Struct, tag="values"):
    """The answer: all of them."""

    number: int
    values: list[Value]


class Withheld(msgspec.Struct, tag="withheld"):
    """The answer to either question: no. It names one of `refusals`."""

    number: int
    reason: str


class Given(msgspec.Struct):
    """A secret that a connection has used."""

    session: str
    host: str
    name: str
    vault_id: str
    version: int


class AskLapsed(msgspec.Struct, tag="ask_lapsed"):
    """Which of these would not be given any more?"""

    number: int
    given: list[Given]


class Lapsed(msgspec.Struct, tag="lapsed"):
    """The answer: their places."""

    number: int
    places: list[int]


ToProxy = Begin | Close | Bound | Values | Withheld | Lapsed
FromProxy = Opened | AskBound | AskRelease | AskLapsed
_to_proxy: Final = msgspec.json.Decoder(ToProxy)
_from_proxy: Final = msgspec.json.Decoder(FromProxy)
_open: Final = msgspec.json.Decoder(Open)
_encode: Final = msgspec.json.Encoder().encode


def frame(message: ToProxy | FromProxy) -> bytes:
    """Return a message with its length."""
    encoded = _encode(message)
    return _SIZE.pack(len(encoded)) + encoded


async def read_to_proxy(stream: asyncio.StreamReader) -> ToProxy:
    """Return what the gateway says next.

    Raises:
        EOFError: It is gone.
        msgspec.DecodeError: It says something else.
    """
    return _to_proxy.decode(await _next(stream))


async def read_from_proxy(stream: asyncio.StreamReader) -> FromProxy:
    """Return what the proxy says next.

    Raises:
        EOFError: It is gone.
        msgspec.DecodeError: It says something else.
    """
    return _from_proxy.decode(await _next(stream))


def open_message(message: Open) -> bytes:
    """Return an `Open` as it goes beside its socket."""
    return _encode(message)


def read_open(data: bytes) -> Open:
    """Return what came beside a socket."""
    return _open.decode(data)


async def _next(stream: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await stream.readexactly(_SIZE.size))
    if size > LARGEST_FRAME:
        raise msgspec.DecodeError
    return await stream.readexactly(size)
