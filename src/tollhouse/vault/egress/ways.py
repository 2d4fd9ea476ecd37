"""Where requests of one connection go, and what is done to them on the way.

    HostWay       a host that a secret is bound to, over TLS: values are put in
    PlainWay      a host without secrets, without TLS
    GatewayWay    the gateway: the session's own key is put in

A way is asked for the head that goes out, and for a connection to send it on.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tollhouse.outbound.checked import CONNECT_SECONDS, DestinationRefused
from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress.injection import check_target, inject, names_in
from tollhouse.vault.egress.refusals import (
    CERTIFICATE,
    DESTINATION,
    NO_ROUTE,
    OTHER_PORT,
    TLS_FOR_SECRETS,
    UNAVAILABLE,
    UNREACHABLE,
    Refused,
)
from tollhouse.vault.egress.targets import HTTP_PORT, HTTPS_PORT, Target
from tollhouse.vault.egress.wire import Gone, Wire, wire_on

if TYPE_CHECKING:
    import socket
    from collections.abc import Collection, Sequence

    from tollhouse.outbound.checked import CheckedDialer
    from tollhouse.vault.egress.heads import Field
    from tollhouse.vault.egress.ports import Grant, Keeper
    from tollhouse.vault.egress.session import Session

_CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key", b"cookie"))


class Asked(NamedTuple):
    """A request's head, as far as it goes on."""

    method: bytes
    path: bytes
    """With the query."""
    headers: list[Field]
    """Without those that were for us."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What goes out, and what must not come back."""

    headers: list[Field] = field(repr=False)
    values: Sequence[str] = field(default=(), repr=False)
    grants: Sequence[Grant] = ()


class Way(Protocol):
    """Where requests go."""

    @property
    def target(self) -> Target:
        """The host and port that they name."""
        ...

    @property
    def default_port(self) -> int:
        """The port that a Host header without one means."""
        ...

    async def prepare(self, asked: Asked) -> Outgoing:
        """Return what goes out for a request.

        Raises:
            Refused: It does not go out.
        """
        ...

    async def connect(self) -> Wire:
        """Return a connection to send it on.

        Raises:
            Refused: There is none.
        """
        ...


class Network:
    """Opens connections to hosts."""

    def __init__(self, dialer: CheckedDialer, trust: ssl.SSLContext) -> None:
        """Take who knows the destinations, and what verifies hosts."""
        self._dialer = dialer
        self._trust = trust

    async def connect(self, target: Target) -> Wire:
        """Return a connection without TLS.

        Raises:
            Refused: There is none.
        """
        try:
            return await wire_on(await self._dialer.dial(target.host, target.port))
        except DestinationRefused:
            raise Refused(DESTINATION) from None
        except OSError:  # a TimeoutError is one
            raise Refused(UNREACHABLE) from None

    async def connect_securely(self, target: Target) -> Wire:
        """Return a connection on which the host has proven that it is the host.

        Raises:
            Refused: There is none.
        """
        wire = await self.connect(target)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await wire.secure(TlsLayer(self._trust, target.host))
        except ssl.SSLCertVerificationError:
            wire.abort()
            raise Refused(CERTIFICATE) from None
        except (ssl.SSLError, Gone, TimeoutError):
            wire.abort()
            raise Refused(UNREACHABLE) from None
        except BaseException:
            wire.abort()
            raise
        return wire


class HostWay:
    """To a host that secrets are bound to."""

    default_port = HTTPS_PORT

    def __init__(
        self, target: Target, network: Network, keeper: Keeper, session: str, *, receives: bool
    ) -> None:
        """Take where it leads, and who knows the secrets of the session.

        Args:
            target: The host and the port.
            network: Connects to it.
            keeper: Knows the secrets.
            session: Whose they are.
            receives: Whether secrets go to this port of the host.
        """
        self.target = target
        self._network = network
        self._keeper = keeper
        self._session = session
        self._receives = receives

    async def prepare(self, asked: Asked) -> Outgoing:
        """Put values in."""
        check_target(asked.path)
        names = names_in(asked.headers)
        if not names:
            return Outgoing(asked.headers)
        if not self._receives:
            raise Refused(OTHER_PORT)
        released = await self._keeper.release(self._session, self.target.host, names)
        values = {name: each.value.reveal() for name, each in released.items()}
        encoded = {name: value.encode() for name, value in values.items()}
        return Outgoing(
            inject(asked.headers, encoded),
            tuple(values.values()),
            tuple(each.grant for each in released.values()),
        )

    async def connect(self) -> Wire:
        """Connect over TLS."""
        return await self._network.connect_securely(self.target)


class PlainWay:
    """To a host without secrets, and without TLS."""

    default_port = HTTP_PORT

    def __init__(self, target: Target, network: Network) -> None:
        """Take where it leads."""
        self.target = target
        self._network = network

    async def prepare(self, asked: Asked) -> Outgoing:
        """Pass it on as it is; who asks for a secret is told why there is none."""
        check_target(asked.path)
        if names_in(asked.headers):
            raise Refused(TLS_FOR_SECRETS)
        return Outgoing(asked.headers)

    async def connect(self) -> Wire:
        """Connect."""
        return await self._network.connect(self.target)


class GatewayWay:
    """To the gateway, with the session's own key."""

    def __init__(
        self, target: Target, gateway: Gateway, session: Session, default_port: int
    ) -> None:
        """Take by which name it is asked for, where it is, and who asks."""
        self.target = target
        self.default_port = default_port
        self._gateway = gateway
        self._session = session

    async def prepare(self, asked: Asked) -> Outgoing:
        """Put the key in, for a route that the session may ask for."""
        path = asked.path.partition(b"?")[0]
        is_read = asked.method == b"GET" and path in self._session.reads
        if self._session.key is None or not (is_read or path in self._gateway.routes):
            raise Refused(NO_ROUTE)
        check_target(asked.path)
        key = self._session.key.reveal()
        headers = [each for each in asked.headers if each[0] not in _CREDENTIALS]
        return Outgoing([*headers, (b"authorization", f"Bearer {key}".encode())], (key,))

    async def connect(self) -> Wire:
        """Connect on this machine, or to where the gateway is."""
        return await self._gateway.connect()


class Gateway:
    """Where the gateway is, and what may be asked of it."""

    def __init__(self, address: tuple[str, int], routes: Collection[bytes], open_: Dial) -> None:
        """Take its address, and the paths of its routes."""
        self._address = address
        self._dial = open_
        self.routes = frozenset(routes)

    async def connect(self) -> Wire:
        """Return a connection to it.

        Raises:
            Refused: There is none.
        """
        try:
            return await wire_on(await self._dial(*self._address))
        except OSError:
            raise Refused(UNAVAILABLE) from None


class Dial(Protocol):
    """Opens a socket to an address of ours."""

    async def __call__(self, host: str, port: int) -> socket.socket:
        """Return it connected; raises `OSError` where it cannot be."""
        ...
