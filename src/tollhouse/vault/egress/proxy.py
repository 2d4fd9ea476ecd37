"""The proxy: its sessions, their clients' connections, and what ends them in time.

The first request of a connection decides what becomes of it:

    CONNECT gateway.internal        its requests are read, and go to the gateway with a key
    CONNECT a host with secrets     its TLS ends here; its requests are read; values are put in
    CONNECT any other host          its TLS passes through, once it asks for that host
    GET http://gateway.internal/    goes to the gateway with a key
    GET http://any other host/      passes through, where the workspace allows that
"""

import asyncio
import base64
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import h11
import structlog

from tollhouse.kernel.clock import Clock
from tollhouse.kernel.secret import Secret
from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.certificates import Authority
from tollhouse.vault.egress.exchange import HEAD_SECONDS, RequestSequence, next_head
from tollhouse.vault.egress.messages import OpenSession, SessionLimits
from tollhouse.vault.egress.rejections import Rejected
from tollhouse.vault.egress.request_head import (
    HTTP_PORT,
    HTTPS_PORT,
    Field,
    HeadReader,
    Target,
    absolute_target,
    check_host,
    check_method,
    connect_target,
    values_of,
)
from tollhouse.vault.egress.routes import (
    GatewayRoute,
    GatewayUpstream,
    HostConnector,
    HostRoute,
    PlainHttpRoute,
    Route,
)
from tollhouse.vault.egress.secret_broker import Grant, SecretBroker
from tollhouse.vault.egress.streams import (
    BandwidthLimiter,
    ByteStream,
    PeerDisconnected,
    listening_protocol,
    tunnel,
)
from tollhouse.vault.egress.tls_client_hello import LARGEST, InvalidClientHello, server_name
from tollhouse.vault.types import GATEWAY_HOST

CHECK_SECONDS: Final = 0.4
"""How often is looked for what has lapsed; a secret that is revoked is so within a second."""
ANSWER_SECONDS: Final = 2.0
"""How long the gateway may take to say what has lapsed; after that everything has."""
MOST_REJECTED: Final = 16
"""Connections of a session that are told at once that there are too many; others are dropped."""
_BACKLOG: Final = 512
_LONGEST_NAME: Final = 64
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_log = structlog.get_logger(__name__)
C = TypeVar("C", "ClientConnection", "RejectedConnection")


class ProxySession:
    """A session of an intern, or of a program that somebody started; known by its socket."""

    def __init__(self, opened: OpenSession, limits: SessionLimits, clock: Clock) -> None:
        self.id = opened.session
        self.key = None if opened.key is None else Secret(opened.key)
        self.plain_http = opened.plain_http
        self.reads = frozenset(each.encode() for each in opened.reads)
        self._password = None if opened.password is None else Secret(opened.password)
        self.limits = limits
        self.authority = Authority(f"Tollhouse egress {opened.session}"[:_LONGEST_NAME], clock)
        self.bandwidth = BandwidthLimiter(limits.bytes_per_minute)
        self.connections: set[ClientConnection] = set()
        self.rejected_connections: set[RejectedConnection] = set()
        self.server: asyncio.AbstractServer | None = None
        self.closed = False

    def check_password(self, headers: Iterable[Field]) -> None:
        """Refuse a client without the password, where one is needed (`Rejected`).

        Source: RFC 9110, section 11.7.2 (Proxy-Authorization).
        """
        if self._password is None:
            return
        expected = base64.b64encode(f"tollhouse:{self._password.reveal()}".encode())
        for value in values_of(headers, b"proxy-authorization"):
            scheme, _, given = value.partition(b" ")
            if scheme.lower() == b"basic" and hmac.compare_digest(given.strip(), expected):
                return
        raise Rejected(rejections.PASSWORD)

    @property
    def full(self) -> bool:
        """Whether it has as many connections as it may."""
        return len(self.connections) >= self.limits.connections

    async def close(self) -> None:
        """Accept nothing more, and drop every connection."""
        self.closed = True
        if self.server is not None:
            self.server.close()
        all_of_them = (*self.connections, *self.rejected_connections)
        for each in all_of_them:
            each.drop()
        await asyncio.gather(*(each.task for each in all_of_them), return_exceptions=True)


@dataclass(frozen=True, slots=True)
class ProxyContext:
    """What all connections share."""

    broker: SecretBroker
    network: HostConnector
    gateway: GatewayUpstream
    tunnel_hosts: frozenset[str]
    allow_ports: frozenset[Target]


class ClientConnection:
    """A client's connection, from its first byte to its end."""

    def __init__(self, stream: ByteStream, session: ProxySession, context: ProxyContext) -> None:
        self._client = stream
        self._session = session
        self._context = context
        self._host: ByteStream | None = None
        self._requests: RequestSequence | None = None
        self.grants: set[Grant] = set()
        """What it has sent; once one of these lapses, the connection ends."""
        self.began = stream.touched
        """When, on the event loop's clock."""
        self.task = asyncio.get_running_loop().create_task(self._run())

    @property
    def touched(self) -> float:
        """When something last went through, on the event loop's clock."""
        host = self._to_host
        return max(self._client.touched, 0.0 if host is None else host.touched)

    @property
    def _to_host(self) -> ByteStream | None:
        return self._host if self._requests is None else self._requests.host

    def drop(self) -> None:
        """End it now, also before its task has begun."""
        self._client.abort()
        self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._serve()
            await self._client.close()
        except Rejected as rejected:
            with suppress(PeerDisconnected):
                await self._client.send(rejected.rejection.answer())
                await self._client.close()
        except PeerDisconnected:
            pass
        except Exception as error:  # noqa: BLE001 - the connection's edge
            # Neither its text nor its trace: either could hold something of a request.
            _log.error("egress_connection_failed", error=type(error).__name__)
        finally:
            self._client.abort()
            if (host := self._to_host) is not None:
                host.abort()

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
        route = await self._plain_route(target)
        await self._sequence(route).exchange(incoming, request, path)

    async def _plain_route(self, target: Target) -> Route:
        if target.host == GATEWAY_HOST:
            return self._gateway_route(target, HTTP_PORT)
        if await self._context.broker.is_bound(self._session.id, target.host):
            raise Rejected(rejections.TLS_FOR_SECRETS)
        if not self._session.plain_http:
            raise Rejected(rejections.TLS_NEEDED)
        return PlainHttpRoute(target, self._context.network)

    # Through a tunnel

    async def _connect(self, incoming: h11.Connection, request: h11.Request) -> None:
        target = connect_target(request.target)
        if hosts := values_of(request.headers, b"host"):
            check_host(hosts, target, target.port)
        early, _ = incoming.trailing_data
        if early:
            raise Rejected(rejections.MALFORMED)  # nothing may be said before the tunnel stands
        if target.host == GATEWAY_HOST:
            await self._gateway_tunnel(target)
        elif (
            await self._context.broker.is_bound(self._session.id, target.host)
            and target.host not in self._context.tunnel_hosts
        ):
            await self._read_tunnel(target)
        else:
            await self._unread_tunnel(target)

    async def _gateway_tunnel(self, target: Target) -> None:
        """Without TLS on port 80: some clients ask for a tunnel there, too."""
        secure = target.port != HTTP_PORT
        port = HTTPS_PORT if secure else HTTP_PORT
        requests = self._sequence(self._gateway_route(target, port))
        await self._client.send(_ESTABLISHED)
        if secure:
            await self._shake_hands(target.host)
        await requests.run()

    async def _read_tunnel(self, target: Target) -> None:
        context = self._context
        receives = target.port == HTTPS_PORT or target in context.allow_ports
        route = HostRoute(
            target, context.network, context.broker, self._session.id, receives=receives
        )
        requests = self._sequence(route)
        await requests.connect()
        await self._client.send(_ESTABLISHED)
        await self._shake_hands(target.host)
        await requests.run()

    def _gateway_route(self, target: Target, default_port: int) -> GatewayRoute:
        session = self._session
        return GatewayRoute(target, self._context.gateway, session.key, session.reads, default_port)

    def _sequence(self, route: Route) -> RequestSequence:
        self._requests = RequestSequence(
            self._client, route, self._session.bandwidth, self.grants.add
        )
        return self._requests

    async def _shake_hands(self, host: str) -> None:
        layer = TlsLayer(self._session.authority.context(host), None)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                await self._client.secure(layer)
        except (ssl.SSLError, TimeoutError):
            raise PeerDisconnected from None

    async def _unread_tunnel(self, target: Target) -> None:
        self._host = host = await self._context.network.connect(target)
        await self._client.send(_ESTABLISHED)
        await host.send(await self._client_hello(target.host))
        await tunnel(self._client, host, self._session.bandwidth)

    async def _client_hello(self, host: str) -> bytes:
        """Return what the client says first: TLS that asks for the host of the tunnel.

        Anything else ends the connection (`PeerDisconnected`); there is no way to say why.
        """
        data = b""
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                while (name := server_name(data)) is None and len(data) <= LARGEST:
                    received = await self._client.receive()
                    if not received:
                        raise PeerDisconnected
                    data += received
        except (InvalidClientHello, TimeoutError):
            raise PeerDisconnected from None
        if name is None or name.lower() != host:
            _log.info("egress_tunnel_refused", reason=rejections.HOST_DISAGREES.reason)
            raise PeerDisconnected
        return data


@dataclass(eq=False, repr=False)
class EgressProxy:
    """Every session of one process."""

    context: ProxyContext
    limits: SessionLimits
    clock: Clock
    _sessions: dict[str, ProxySession] = field(default_factory=dict[str, ProxySession])

    async def open(self, opened: OpenSession, sock: socket.socket) -> str:
        """Serve a session, in place of one of its id; return its authority's certificate as PEM."""
        await self.close(opened.session)
        session = ProxySession(opened, self.limits, self.clock)
        self._sessions[session.id] = session
        sock.setblocking(False)  # noqa: FBT003 - its only form
        session.server = await asyncio.get_running_loop().create_unix_server(
            lambda: listening_protocol(lambda stream: self._accept(session, stream)),
            sock=sock,
            backlog=_BACKLOG,
        )
        return session.authority.certificate

    async def close(self, session_id: str) -> None:
        """End a session, with every connection of it."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    async def stop(self) -> None:
        """End all."""
        await asyncio.gather(*map(self.close, tuple(self._sessions)))

    async def enforce_timeouts(self) -> None:
        """Until cancelled, end connections that idle, last too long, or use a lapsed grant."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._repeat(self._end_idle))
            both.create_task(self._repeat(self._end_lapsed))

    async def _repeat(self, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await check()

    def _accept(self, session: ProxySession, stream: ByteStream) -> None:
        if session.closed:
            stream.abort()
        elif not session.full:
            _keep(session.connections, ClientConnection(stream, session, self.context))
        elif len(session.rejected_connections) < MOST_REJECTED:
            _keep(session.rejected_connections, RejectedConnection(stream))
        else:
            stream.abort()

    async def _end_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for session in self._sessions.values():
            limits = session.limits
            for each in tuple(session.connections):
                idle = now - each.touched > limits.idle_seconds
                if idle or now - each.began > limits.total_seconds:
                    each.drop()

    async def _end_lapsed(self) -> None:
        users: dict[Grant, list[ClientConnection]] = {}
        for session in self._sessions.values():
            for connection in session.connections:
                for grant in connection.grants:
                    users.setdefault(grant, []).append(connection)
        if not users:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                lapsed = await self.context.broker.lapsed(users)
        except (Rejected, TimeoutError):
            lapsed = users  # nobody can say that they stand
        for grant in lapsed:
            for connection in users[grant]:
                connection.drop()


class RejectedConnection:
    """A connection that is told that there are too many."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.task = asyncio.get_running_loop().create_task(self._run())

    def drop(self) -> None:
        """End it now, also before its task has begun."""
        self._stream.abort()
        self.task.cancel()

    async def _run(self) -> None:
        try:
            with suppress(PeerDisconnected):
                await self._stream.send(rejections.TOO_MANY.answer())
                await self._stream.close()
        finally:
            self._stream.abort()


def _keep(connections: set[C], connection: C) -> None:
    """Keep a connection until its task has ended."""
    connections.add(connection)
    connection.task.add_done_callback(lambda _: connections.discard(connection))
