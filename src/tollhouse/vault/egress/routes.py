"""Where requests of one connection go, and what is done to them on the way.

    HostRoute         a host that a secret is bound to, over TLS: values are put in
    PlainHttpRoute    a host without secrets, without TLS
    GatewayRoute      the gateway: the session's own key is put in

A route is asked for the head that goes out, and for a connection to send it on.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from tollhouse.kernel.secret import Secret
from tollhouse.outbound.dialing import CONNECT_SECONDS, CheckedDialer, DestinationRefused
from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.injection import check_target, inject, names_in
from tollhouse.vault.egress.rejections import Rejected
from tollhouse.vault.egress.request_head import HTTP_PORT, HTTPS_PORT, Field, Target
from tollhouse.vault.egress.secret_broker import Grant, SecretBroker
from tollhouse.vault.egress.streams import ByteStream, PeerDisconnected, stream_on

_CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"cookie"))
Dial = Callable[[str, int], Awaitable[socket.socket]]
"""Opens a socket to an address of ours; raises `OSError`."""


class RequestHead(NamedTuple):
    """A request's head, as far as it goes on."""

    method: bytes
    path: bytes
    """With the query."""
    headers: list[Field]
    """Without those that were for us."""


@dataclass(frozen=True, slots=True)
class PreparedHead:
    """What goes out, and what must not come back."""

    headers: list[Field] = field(repr=False)
    values: Sequence[str] = field(default=(), repr=False)
    grants: Sequence[Grant] = ()


class Route(Protocol):
    """Where requests go."""

    target: Target
    """The host and port that they name."""
    default_port: int
    """The port that a Host header without one means."""

    async def prepare(self, asked: RequestHead) -> PreparedHead:
        """Return what goes out for a request; raises `Rejected` where nothing does."""
        ...

    async def connect(self) -> ByteStream:
        """Return a connection to send it on; raises `Rejected` where there is none."""
        ...


@dataclass(slots=True)
class HostConnector:
    """Opens connections to hosts; raises `Rejected` where there is none."""

    dialer: CheckedDialer
    trust: ssl.SSLContext

    async def connect(self, target: Target) -> ByteStream:
        """Return a connection without TLS."""
        try:
            return await stream_on(await self.dialer.dial(target.host, target.port))
        except DestinationRefused:
            raise Rejected(rejections.DESTINATION) from None
        except OSError:  # a TimeoutError is one
            raise Rejected(rejections.UNREACHABLE) from None

    async def connect_securely(self, target: Target) -> ByteStream:
        """Return a connection on which the host has proven that it is the host."""
        stream = await self.connect(target)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await stream.secure(TlsLayer(self.trust, target.host))
        except BaseException as error:
            stream.abort()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise Rejected(rejections.CERTIFICATE) from None
            if isinstance(error, (ssl.SSLError, PeerDisconnected, TimeoutError)):
                raise Rejected(rejections.UNREACHABLE) from None
            raise
        return stream


@dataclass(slots=True)
class HostRoute:
    """To a host that secrets are bound to."""

    target: Target
    network: HostConnector
    broker: SecretBroker
    session: str
    receives: bool
    """Whether secrets go to this port."""
    default_port: int = HTTPS_PORT

    async def prepare(self, asked: RequestHead) -> PreparedHead:
        """Put values in."""
        check_target(asked.path)
        names = names_in(asked.headers)
        if not names:
            return PreparedHead(asked.headers)
        if not self.receives:
            raise Rejected(rejections.OTHER_PORT)
        released = await self.broker.release(self.session, self.target.host, names)
        values = {name: each.value.reveal() for name, each in released.items()}
        encoded = {name: value.encode() for name, value in values.items()}
        return PreparedHead(
            inject(asked.headers, encoded),
            tuple(values.values()),
            tuple(each.grant for each in released.values()),
        )

    async def connect(self) -> ByteStream:
        """Connect over TLS."""
        return await self.network.connect_securely(self.target)


@dataclass(slots=True)
class PlainHttpRoute:
    """To a host without secrets, and without TLS."""

    target: Target
    network: HostConnector
    default_port: int = HTTP_PORT

    async def prepare(self, asked: RequestHead) -> PreparedHead:
        """Pass it on as it is; who asks for a secret is told why there is none."""
        check_target(asked.path)
        if names_in(asked.headers):
            raise Rejected(rejections.TLS_FOR_SECRETS)
        return PreparedHead(asked.headers)

    async def connect(self) -> ByteStream:
        """Connect."""
        return await self.network.connect(self.target)


@dataclass(slots=True)
class GatewayUpstream:
    """Where the gateway is, and what may be asked of it."""

    address: tuple[str, int]
    routes: Collection[bytes]
    dial: Dial

    async def connect(self) -> ByteStream:
        """Return a connection to it; raises `Rejected` where there is none."""
        try:
            return await stream_on(await self.dial(*self.address))
        except OSError:
            raise Rejected(rejections.UNAVAILABLE) from None


@dataclass(slots=True)
class GatewayRoute:
    """To the gateway, with the session's own key."""

    target: Target
    gateway: GatewayUpstream
    key: Secret | None
    reads: frozenset[bytes]
    """Paths that it may read, besides the gateway's routes."""
    default_port: int

    async def prepare(self, asked: RequestHead) -> PreparedHead:
        """Put the key in, for a route that the session may ask for."""
        path = asked.path.partition(b"?")[0]
        is_read = asked.method == b"GET" and path in self.reads
        if self.key is None or not (is_read or path in self.gateway.routes):
            raise Rejected(rejections.NO_ROUTE)
        check_target(asked.path)
        key = self.key.reveal()
        headers = [each for each in asked.headers if each[0] not in _CREDENTIALS]
        return PreparedHead([*headers, (b"authorization", f"Bearer {key}".encode())], (key,))

    async def connect(self) -> ByteStream:
        """Connect on this machine, or to where the gateway is."""
        return await self.gateway.connect()
