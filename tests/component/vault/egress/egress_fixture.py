"""A proxy in this process, hosts that record what reached them, and a client that sends bytes.

egress = EgressFixture(...)              `api.example` has secrets, `other.example` has none
client = await egress.tunnel(API)        CONNECT, and TLS with the session's authority
await client.send(b"GET / HTTP/1.1\r\n...")
status, headers, body = await client.response()
egress.api.peers[-1].arrived             the bytes that reached the host's socket
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import h11
import trustme

from tests.support.providers.raw_server import RawServer
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.secret import Secret
from tollhouse.outbound.dialing import AddressInfo, CheckedDialer, connect_to, numeric
from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault import policy
from tollhouse.vault.egress.messages import OpenSession, SessionLimits
from tollhouse.vault.egress.proxy import EgressProxy, ProxyContext
from tollhouse.vault.egress.rejections import OTHER_HOST, UNKNOWN_SECRET, Rejected
from tollhouse.vault.egress.request_head import Target
from tollhouse.vault.egress.routes import GatewayUpstream, HostConnector
from tollhouse.vault.egress.secret_broker import DisclosedSecret, Grant
from tollhouse.vault.types import Resolved, Scope, StoredSecret, Verdict

API: Final = "api.example"
OTHER: Final = "other.example"
SECOND: Final = "second.example"
"""A host with a secret of its own."""
VALUE: Final = "gh0_s3cret+value/of=thirty.chars"
SECOND_VALUE: Final = "another-secret-of-another-host"
GATEWAY_KEY: Final = "sk-th-v1-the-sessions-own-key"
ROUTE: Final = b"/v1/chat/completions"
NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS: Final = SessionLimits(
    connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40
)
Response = tuple[int, dict[str, str], bytes]


@dataclass
class FakeSecretBroker:
    """Keeps secrets in memory, and records the disclosures."""

    secrets: dict[str, tuple[str, frozenset[str]]] = field(
        default_factory=lambda: {
            "token": (VALUE, frozenset({API})),
            "second": (SECOND_VALUE, frozenset({SECOND})),
        }
    )
    released: list[tuple[str, str]] = field(default_factory=list)
    """Names and hosts of the disclosed secrets."""
    unresponsive: bool = False
    """Whether the question which grants have lapsed is never answered."""

    @property
    def resolved(self) -> dict[str, Resolved]:
        """The secrets as the resolver gets them."""
        return {
            name: Resolved(
                StoredSecret("vault", name, 1, tuple(hosts), "sha256:", NOW, NOW, b""), Scope.INTERN
            )
            for name, (_, hosts) in self.secrets.items()
        }

    async def is_bound(self, session: str, host: str) -> bool:
        del session
        return policy.is_bound(self.resolved, host, release_unbound=False)

    async def release(
        self, session: str, host: str, names: Sequence[str]
    ) -> Mapping[str, DisclosedSecret]:
        found: dict[str, DisclosedSecret] = {}
        for name in names:
            verdict = policy.verdict(self.resolved, name, host, release_unbound=False)
            if verdict is not Verdict.RELEASED:
                raise Rejected(UNKNOWN_SECRET if verdict is Verdict.UNKNOWN_NAME else OTHER_HOST)
            value, _ = self.secrets[name]
            found[name] = DisclosedSecret(Grant(session, host, name, "vault", 1), Secret(value))
        self.released += [(name, host) for name in names]
        return found

    async def lapsed(self, grants: Collection[Grant]) -> Collection[Grant]:
        if self.unresponsive:
            await asyncio.get_running_loop().create_future()
        del grants
        return []


class FakeNameServer:
    """Resolves names as a test sets them, and records the lookups."""

    def __init__(self) -> None:
        self.addresses: dict[str, list[str]] = {}
        self.ports: dict[str, int] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[AddressInfo]:
        self.asked.append(host)
        if host not in self.addresses:
            raise socket.gaierror
        return [
            info
            for address in self.addresses[host]
            for info in numeric(address, self.ports.get(host, port))
        ]


@dataclass
class EgressFixture:
    """A proxy with its broker, name server and hosts."""

    folder: Path
    hosts: Mapping[str, RawServer]
    gateway: RawServer
    authority: trustme.CA
    broker: FakeSecretBroker = field(default_factory=FakeSecretBroker)
    name_server: FakeNameServer = field(default_factory=FakeNameServer)
    limits: SessionLimits = LIMITS
    allowed: Sequence[str] = ("127.0.0.0/8",)
    plain_http: bool = False
    password: str | None = None
    allow_ports: frozenset[Target] | None = None
    """The ports at which the hosts of this process listen, unless given."""
    patience: float = 20.0
    """Seconds for which an attack waits until it is stopped."""
    clients: list[Client] = field(default_factory=list)

    @property
    def api(self) -> RawServer:
        return self.hosts[API]

    @property
    def other(self) -> RawServer:
        return self.hosts[OTHER]

    @property
    def path(self) -> str:
        return str(self.folder / "proxy.sock")

    async def restart(self, **changes: object) -> None:
        await self.close()
        for name, value in changes.items():
            setattr(self, name, value)
        self.folder = Path(tempfile.mkdtemp(dir=self.folder))
        await self.open()

    async def open(self) -> None:
        for host in self.hosts:
            self.name_server.addresses.setdefault(host, ["127.0.0.1"])
        trust = ssl.create_default_context()
        self.authority.configure_trust(trust)
        trust.set_alpn_protocols(["http/1.1"])
        dialer = CheckedDialer(self.name_server, [ip_network(each) for each in self.allowed], {})

        async def dial(host: str, port: int) -> socket.socket:
            return await connect_to(numeric(host, port))

        gateway = GatewayUpstream(("127.0.0.1", self.gateway.port), [ROUTE], dial)
        ports = self.allow_ports
        if ports is None:
            ports = frozenset(Target(host, server.port) for host, server in self.hosts.items())
        network = HostConnector(dialer, trust)
        context = ProxyContext(self.broker, network, gateway, frozenset(), ports)
        self.proxy = EgressProxy(context, self.limits, SystemClock())
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen(512)
        opened = OpenSession("session", GATEWAY_KEY, self.password, self.plain_http)
        certificate = await self.proxy.open(opened, listener)
        self.trust = ssl.create_default_context(cadata=certificate)
        self.trust.check_hostname = False
        self.session = self.proxy._sessions["session"]  # noqa: SLF001 - what tests look into
        self.timeouts_task = asyncio.create_task(self.proxy.enforce_timeouts())

    async def close(self) -> None:
        for client in self.clients:
            client.abort()
        self.timeouts_task.cancel()
        await asyncio.gather(self.timeouts_task, return_exceptions=True)
        await self.proxy.stop()

    async def client(self) -> Client:
        reader, writer = await asyncio.open_unix_connection(self.path)
        client = Client(reader, writer)
        self.clients.append(client)
        return client

    async def tunnel(
        self, host: str = API, *, port: int | None = None, name: str | None = None
    ) -> Client:
        """Return a connection through a tunnel, after the TLS handshake.

        Args:
            host: The host of the CONNECT.
            port: The host's own unless given.
            name: The server name of the handshake; the host unless given.
        """
        client = await self.client()
        await client.connect(host, self.port_of(host) if port is None else port)
        trust = self.trust
        if host == OTHER:
            trust = ssl.create_default_context()
            self.authority.configure_trust(trust)
        await client.handshake(trust, host if name is None else name)
        return client

    def port_of(self, host: str) -> int:
        return self.hosts[host].port if host in self.hosts else 443

    def head(self, *lines: str, host: str = API, request: str = "GET / HTTP/1.1") -> bytes:
        """Return the head of a request for a host, with further lines."""
        named = f"Host: {host}:{self.port_of(host)}"
        return "".join(f"{line}\r\n" for line in (request, named, *lines, "")).encode("latin-1")


class ConnectRefusedError(AssertionError):
    """A CONNECT was not answered with 200; contains the response's head."""

    def __init__(self, head: bytes) -> None:
        super().__init__(head)
        self.head = head


class Client:
    """A client of the proxy that can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tls: TlsLayer | None = None
        self._left = b""

    async def connect(self, host: str, port: int, *lines: str) -> None:
        target = f"{host}:{port}"
        head = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *lines, "", ""]
        await self.send("\r\n".join(head).encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ConnectRefusedError(answer)

    async def handshake(self, trust: ssl.SSLContext, name: str) -> None:
        """Perform the TLS handshake; raises `EOFError` where it is refused."""
        layer, received = TlsLayer(trust, name), b""
        while not layer.handshake(received):
            self._writer.write(layer.outgoing())
            received = await self._reader.read(65_536)
            if not received:
                raise EOFError
        self._writer.write(layer.outgoing())
        self._tls = layer

    async def send(self, data: bytes) -> None:
        self._writer.write(data if self._tls is None else self._tls.encrypt(data))
        await self._writer.drain()

    async def receive(self) -> bytes:
        """Return the next bytes; none at the end."""
        if self._left:
            data, self._left = self._left, b""
            return data
        while True:
            received = await self._reader.read(65_536)
            if self._tls is None or not received:
                return received
            data = self._tls.decrypt(received)
            if data or self._tls.ended:
                return data

    async def receive_all(self) -> bytes:
        pieces: list[bytes] = []
        while data := await self.receive():
            pieces.append(data)
        return b"".join(pieces)

    async def response(self, method: str = "GET") -> Response:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("Host", "any")]))
        reader.send(h11.EndOfMessage())
        status, headers, body = 0, {}, b""
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                reader.receive_data(await self.receive())
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._left = reader.trailing_data[0]
                return status, headers, body
            elif not isinstance(event, h11.InformationalResponse):
                raise EOFError

    async def request(self, data: bytes, method: str = "GET") -> Response:
        await self.send(data)
        return await self.response(method)

    def close_notify(self) -> None:
        assert self._tls is not None
        self._writer.write(self._tls.goodbye())

    def half_close(self) -> None:
        self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()
