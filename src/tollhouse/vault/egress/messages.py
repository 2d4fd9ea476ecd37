"""What the gateway and its proxy say to each other, over a pair of sockets that both inherit.

    gateway                         proxy
       │  Begin ───────────────────▶ │    once: limits, destinations, where the gateway is
       │  Open + a listening socket ▶│    a session; its socket says who it is
       │ ◀──────────────────── Opened│    its certificate authority, to be trusted by the client
       │ ◀──────── AskBound, AskRelease, AskLapsed
       │  Bound, Values, ReleaseDenied, Lapsed ▶│    each to the question of its number
       │  Close ───────────────────▶ │

The sockets of sessions come on a second pair, one frame each, since a descriptor belongs to a
message. Values stand in `Values` alone, which goes from one process to the other and nowhere else.
"""

from typing import Final

import msgspec

from tollhouse.kernel.channel import Channel

LARGEST_OPEN: Final = 65_536
"""Bytes of the frame of an `OpenSession`."""
_LARGEST: Final = 1 << 26
"""Bytes of any other message."""


class _Concealing(msgspec.Struct):
    """A message with a secret in it: of its fields, only the first is ever shown."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self, self.__struct_fields__[0])})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        name = self.__struct_fields__[0]
        return [(name, getattr(self, name))]


class _Numbered(msgspec.Struct):
    """A question, or the answer to the one of the same number."""

    number: int


class SessionLimits(msgspec.Struct, frozen=True):
    """What one session may use; see `EgressSettings`."""

    connections: int
    idle_seconds: float
    total_seconds: float
    bytes_per_minute: int


class StartProxy(msgspec.Struct, tag="begin"):
    """Everything that holds for all sessions."""

    gateway: tuple[str, int]
    """Where the gateway listens: host and port."""
    routes: list[str]
    """Paths that sessions may ask the gateway for."""
    limits: SessionLimits
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


class OpenSession(_Concealing, tag="open"):
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


class CloseSession(msgspec.Struct, tag="close"):
    """A session ends, with every connection of it."""

    session: str


class SessionOpened(msgspec.Struct, tag="opened"):
    """A session is there."""

    session: str
    certificate: str
    """Of its authority, as PEM."""


class AskBound(_Numbered, tag="ask_bound"):
    """Is a secret of a session bound to a host?"""

    session: str
    host: str


class Bound(_Numbered, tag="bound"):
    """The answer to `AskBound`."""

    bound: bool


class AskRelease(_Numbered, tag="ask_release"):
    """Which values have some names, for a request to a host?"""

    session: str
    host: str
    names: list[str]


class ReleasedValue(_Concealing):
    """A value that is released."""

    name: str
    value: str
    vault_id: str
    version: int


class Values(_Numbered, tag="values"):
    """The answer to `AskRelease`: all of them."""

    values: list[ReleasedValue]


class ReleaseDenied(_Numbered, tag="withheld"):
    """The answer to `AskBound` or `AskRelease` where it is no; it names one of `rejections`."""

    reason: str


class Grant(msgspec.Struct, frozen=True):
    """A secret of one version, released to one session for one host."""

    session: str
    host: str
    name: str
    vault_id: str
    version: int


class AskLapsed(_Numbered, tag="ask_lapsed"):
    """Which of these would not be given any more?"""

    grants: list[Grant]


class Lapsed(_Numbered, tag="lapsed"):
    """The answer to `AskLapsed`: their places."""

    places: list[int]


ToProxy = StartProxy | CloseSession | Bound | Values | ReleaseDenied | Lapsed
FromProxy = SessionOpened | AskBound | AskRelease | AskLapsed
TO_PROXY: Final[Channel[ToProxy]] = Channel(ToProxy, largest=_LARGEST)
FROM_PROXY: Final[Channel[FromProxy]] = Channel(FromProxy, largest=_LARGEST)
OPEN: Final = Channel(OpenSession, largest=LARGEST_OPEN - 4)
"""On the second pair of sockets."""
