"""One connection of a client: what it asks for first decides what becomes of it.

CONNECT gateway.internal        its requests are read, and go to the gateway with a key
CONNECT a host with secrets     its TLS ends here; its requests are read; values are put in
CONNECT any other host          its TLS passes through, once it asks for that host
GET http://gateway.internal/    goes to the gateway with a key
GET http://any other host/      passes through, where the workspace allows that
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress.conversation import HEAD_SECONDS, Conversation, next_head
from tollhouse.vault.egress.heads import HeadReader, check_method, values_of
from tollhouse.vault.egress.hello import LARGEST, NoHello, server_name
from tollhouse.vault.egress.refusals import (
    HOST_DISAGREES,
    MALFORMED,
    TLS_FOR_SECRETS,
    TLS_NEEDED,
    Refused,
)
from tollhouse.vault.egress.targets import (
    HTTP_PORT,
    HTTPS_PORT,
    absolute_target,
    check_host,
    connect_target,
)
from tollhouse.vault.egress.tunnel import tunnel
from tollhouse.vault.egress.ways import GatewayWay, HostWay, PlainWay
from tollhouse.vault.egress.wire import Gone
from tollhouse.vault.types import GATEWAY_HOST

if TYPE_CHECKING:
    import h11

    from tollhouse.vault.egress.ports import Grant, Keeper
    from tollhouse.vault.egress.refusals import Refusal
    from tollhouse.vault.egress.session import Session
    from tollhouse.vault.egress.targets import Target
    from tollhouse.vault.egress.ways import Gateway, Network, Way
    from tollhouse.vault.egress.wire import Wire

_log = structlog.get_logger(__name__)
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Surroundings:
    """What all connections share."""

    def __init__(
        self,
        keeper: Keeper,
        network: Network,
        gateway: Gateway,
        tunnel_hosts: frozenset[str],
        allow_ports: frozenset[Target],
    ) -> None:
        """Take it; `EgressSettings` tells what hosts and ports mean."""
        self.keeper = keeper
        self.network = network
        self.gateway = gateway
        self.tunnel_hosts = tunnel_hosts
        self.allow_ports = allow_ports


class ClientConnection:
    """A client's connection, from its first byte to its end."""

    def __init__(self, wire: Wire, session: Session, around: Surroundings) -> None:
        """Begin."""
        self._client = wire
        self._session = session
        self._around = around
        self._host: Wire | None = None
        self._conversation: Conversation | None = None
        self.grants: set[Grant] = set()
        self.began = wire.touched
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def touched(self) -> float:
        """When something last went through, on the event loop's clock."""
        host = self._to_host
        return max(self._client.touched, 0.0 if host is None else host.touched)

    @property
    def _to_host(self) -> Wire | None:
        return self._host if self._conversation is None else self._conversation.host

    def drop(self) -> None:
        """End it now, also before its task has begun."""
        self._client.abort()
        self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._serve()
            await self._client.close()
        except Refused as refused:
            await self._refuse(refused.refusal)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - the connection's edge
            # Neither its text nor its trace: either could hold something of a request.
            _log.error("egress_connection_failed", error=type(error).__name__)
        finally:
            self._client.abort()
            if (host := self._to_host) is not None:
                host.abort()

    async def _refuse(self, refusal: Refusal) -> None:
        try:
            await self._client.send(refusal.answer())
            await self._client.close()
        except Gone:
            return

    async def _serve(self) -> None:
        found = await next_head(self._client, HeadReader())
        if found is None:
            return
        incoming, request = found
        self._session.check_password(request.headers)
        if request.method == b"CONNECT":
            await self._connect(incoming, request)
        else:
            await self._plain(incoming, request)

    # Outside a tunnel

    async def _plain(self, incoming: h11.Connection, request: h11.Request) -> None:
        check_method(request.method)
        target, path = absolute_target(request.target)
        way = await self._plain_way(target)
        self._conversation = Conversation(self._client, way, self._session.pace, self.grants.add)
        await self._conversation.exchange(incoming, request, path)

    async def _plain_way(self, target: Target) -> Way:
        if target.host == GATEWAY_HOST:
            return GatewayWay(target, self._around.gateway, self._session, HTTP_PORT)
        if await self._around.keeper.is_bound(self._session.id, target.host):
            raise Refused(TLS_FOR_SECRETS)
        if not self._session.plain_http:
            raise Refused(TLS_NEEDED)
        return PlainWay(target, self._around.network)

    # Through a tunnel

    async def _connect(self, incoming: h11.Connection, request: h11.Request) -> None:
        target = connect_target(request.target)
        if hosts := values_of(request.headers, b"host"):
            check_host(hosts, target, target.port)
        early, _ = incoming.trailing_data
        if early:
            raise Refused(MALFORMED)  # nothing may be said before the tunnel stands
        if target.host == GATEWAY_HOST:
            await self._gateway_tunnel(target)
        elif await self._is_read(target.host):
            await self._read_tunnel(target)
        else:
            await self._unread_tunnel(target)

    async def _is_read(self, host: str) -> bool:
        bound = await self._around.keeper.is_bound(self._session.id, host)
        return bound and host not in self._around.tunnel_hosts

    async def _gateway_tunnel(self, target: Target) -> None:
        """Without TLS on port 80: some clients ask for a tunnel there, too."""
        secure = target.port != HTTP_PORT
        port = HTTPS_PORT if secure else HTTP_PORT
        way = GatewayWay(target, self._around.gateway, self._session, port)
        await self._client.send(_ESTABLISHED)
        if secure:
            await self._shake_hands(target.host)
        await self._converse(way, connect=False)

    async def _read_tunnel(self, target: Target) -> None:
        around = self._around
        receives = target.port == HTTPS_PORT or target in around.allow_ports
        way = HostWay(target, around.network, around.keeper, self._session.id, receives=receives)
        await self._converse(way, connect=True)

    async def _converse(self, way: Way, *, connect: bool) -> None:
        conversation = Conversation(self._client, way, self._session.pace, self.grants.add)
        self._conversation = conversation
        if connect:
            await conversation.connect()
            await self._client.send(_ESTABLISHED)
            await self._shake_hands(way.target.host)
        await conversation.run(b"")

    async def _shake_hands(self, host: str) -> None:
        layer = TlsLayer(self._session.authority.context(host), None)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                await self._client.secure(layer)
        except (ssl.SSLError, TimeoutError):
            raise Gone from None

    async def _unread_tunnel(self, target: Target) -> None:
        self._host = host = await self._around.network.connect(target)
        await self._client.send(_ESTABLISHED)
        await host.send(await self._hello(target.host))
        await tunnel(self._client, host, self._session.pace)

    async def _hello(self, host: str) -> bytes:
        """Return what the client says first: TLS that asks for the host of the tunnel.

        Raises:
            Gone: It does not; there is no way to say why.
        """
        data = b""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while (name := server_name(data)) is None and len(data) <= LARGEST:
                    received = await self._client.receive()
                    if not received:
                        raise Gone
                    data += received
        except (NoHello, TimeoutError):
            raise Gone from None
        if name is None or name.lower() != host:
            _log.info("egress_tunnel_refused", reason=HOST_DISAGREES.reason)
            raise Gone
        return data
