"""Attacks with the answer, the destination, and what exhausts resources."""

import asyncio
import ssl
from contextlib import suppress

import pytest
import trustme

from tests.component.vault.egress.attacks.table import (
    TOKEN,
    assert_nothing_reached,
    assert_refused,
    attack,
    check_nothing,
    without,
)
from tests.component.vault.egress.egress_fixture import (
    API,
    VALUE,
    Client,
    ConnectRefusedError,
    EgressFixture,
    FakeNameServer,
)
from tests.support.providers.raw_server import Peer, RawServer, reply, say
from tests.support.waiting import take_turns
from tollhouse.kernel import redaction
from tollhouse.outbound import destinations, dialing
from tollhouse.vault.egress import exchange, proxy, request_head, routes, websocket
from tollhouse.vault.egress.messages import SessionLimits
from tollhouse.vault.egress.proxy import ProxySession
from tollhouse.vault.egress.streams import BandwidthLimiter

# ------------------------------------------------------------------------------------ echo


@attack("echo", without(redaction.Redactor, "_places", lambda *_: ()))
async def an_answer_that_shows_the_value(egress: EgressFixture) -> None:
    egress.api.behave = say(reply(f"you said {VALUE}".encode()))
    client = await egress.tunnel()
    _, _, body = await client.request(egress.head(TOKEN))
    assert VALUE.encode() not in body


@attack("echo", without(exchange, "_UNENCODED", frozenset({"", "identity", b"gzip"})))
async def an_answer_that_cannot_be_read(egress: EgressFixture) -> None:
    egress.api.behave = say(reply(b"\x1f\x8b...", fields=b"Content-Encoding: gzip\r\n"))
    client = await egress.tunnel()
    await assert_refused(client, egress.head(TOKEN), "compressed")


@attack("echo", without(exchange, "_NOT_SENT_WITH_VALUES", frozenset()))
async def parts_of_answers_and_compressed_ones(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await client.request(egress.head(TOKEN, "Accept-Encoding: gzip, br", "Range: bytes=3-9"))
    arrived = bytes(egress.api.peers[0].arrived)
    assert b"accept-encoding: identity\r\n" in arrived
    assert b"gzip" not in arrived
    assert b"range" not in arrived


# ------------------------------------------------------------------------------- websocket


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


async def _as_websocket(peer: Peer) -> None:
    await peer.play(
        SWITCH + b"Sec-WebSocket-Accept: x\r\n\r\n", f"\x81\x20{VALUE}".encode("latin-1")
    )
    await peer.wait_closed()


UPGRADE = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: eA==", "Sec-WebSocket-Extensions: permessage-deflate"),
)


@attack("websocket", without(exchange, "_NOT_SENT_WITH_VALUES", frozenset()))
async def a_websocket_that_is_compressed(egress: EgressFixture) -> None:
    egress.api.behave = _as_websocket
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, *UPGRADE))
    assert (await client.receive()).startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in bytes(egress.api.peers[0].arrived)


@attack("websocket", without(exchange, "check_extensions", check_nothing))
async def a_websocket_that_is_compressed_unasked(egress: EgressFixture) -> None:
    agreed = b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    egress.api.behave = say(SWITCH + agreed)
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, *UPGRADE))
    assert b"x-tollhouse-egress: extension\r\n" in await client.receive()


@attack("websocket", without(websocket, "_EXTENDED", 0))
async def a_compressed_frame_without_an_extension(egress: EgressFixture) -> None:
    await _hidden(egress, b"\xc1\x20" + VALUE.encode()[::-1])


@attack("websocket", without(websocket, "_MASKED", 0))
async def a_masked_frame_of_a_host(egress: EgressFixture) -> None:
    mask = b"\1\2\3\4" * 8
    payload = bytes(each ^ mask[at] for at, each in enumerate(VALUE.encode()))
    await _hidden(egress, b"\x81\xa0" + mask[:4] + payload)


async def _hidden(egress: EgressFixture, frame: bytes) -> None:
    """Check that a frame in which the value cannot be seen is not passed on."""

    async def say_hidden(peer: Peer) -> None:
        await peer.play(SWITCH + b"Sec-WebSocket-Accept: x\r\n\r\n", frame)
        await peer.wait_closed()

    egress.api.behave = say_hidden
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, *UPGRADE))
    heard = b""
    while not heard.partition(b"\r\n\r\n")[2]:
        heard += await client.receive()
    assert heard.endswith(b"\r\n\r\n\x88\x02\x03\xea")


@attack("websocket", without(redaction.Redactor, "_places", lambda *_: ()))
async def a_frame_that_shows_the_value(egress: EgressFixture) -> None:
    egress.api.behave = _as_websocket
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, *UPGRADE))
    heard = b""
    while b"\x81" not in heard or len(heard.partition(b"\x81")[2]) < len(VALUE) + 1:
        heard += await client.receive()
    assert VALUE.encode() not in heard


# Attacks with the destination: a false certificate, a private address


# -------------------------------------------------------------------- upstream certificate


def _trusts_anybody(patch: pytest.MonkeyPatch) -> None:
    connect = routes.HostConnector.connect_securely

    async def loosely(self: routes.HostConnector, target: object) -> object:
        self.trust.check_hostname = False
        self.trust.verify_mode = ssl.CERT_NONE
        return await connect(self, target)  # type: ignore[arg-type]

    patch.setattr(routes.HostConnector, "connect_securely", loosely)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_another_host(egress: EgressFixture) -> None:
    egress.broker.secrets["wrong"] = (VALUE, frozenset({"wrong.example"}))
    egress.name_server.addresses["wrong.example"] = ["127.0.0.1"]
    with pytest.raises(ConnectRefusedError, match="certificate"):
        await egress.tunnel("wrong.example", port=egress.api.port)
    assert_nothing_reached(egress.api)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_nobody_that_is_trusted(egress: EgressFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(API).configure_cert(context)
    async with RawServer(ssl_context=context) as server:
        egress.name_server.ports[API] = server.port
        with pytest.raises(ConnectRefusedError, match="certificate"):
            await egress.tunnel()
        assert_nothing_reached(server)


# ------------------------------------------------------------------- addresses and names


@attack("destinations", without(dialing, "refusal", check_nothing))
async def a_name_with_an_address_of_ours(egress: EgressFixture) -> None:
    await egress.restart(allowed=())
    with pytest.raises(ConnectRefusedError, match="destination"):
        await egress.tunnel()
    assert_nothing_reached(egress.api)


@attack("destinations", without(dialing, "refusal", check_nothing))
async def a_name_with_one_address_of_ours_beside_others(egress: EgressFixture) -> None:
    await egress.restart(allowed=("127.0.0.1/32",))
    egress.name_server.addresses[API] = ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await egress.tunnel()
    assert_nothing_reached(egress.api)


@attack("destinations", without(destinations, "METADATA", frozenset()))
async def a_metadata_address_in_a_network_that_is_open(egress: EgressFixture) -> None:
    await egress.restart(allowed=("0.0.0.0/0",))
    # Reserved for documentation: nobody is there, where the rule is off.
    egress.name_server.addresses[API] = ["168.63.129.16", "192.0.2.1"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await asyncio.wait_for(egress.tunnel(), egress.patience)


class Rebinding(FakeNameServer):
    """Resolves to an allowed address first, and then to another one."""

    async def __call__(self, host: str, port: int) -> object:  # type: ignore[override]
        found = await super().__call__(host, port)
        self.addresses[host] = ["127.0.0.2"]
        return found


def _looks_up_twice(patch: pytest.MonkeyPatch) -> None:
    dial = dialing.connect_to

    async def again(addresses: object) -> object:
        del addresses
        names = _REBOUND[0]
        return await dial(await names(API, 0))  # type: ignore[arg-type]

    patch.setattr(dialing, "connect_to", again)


_REBOUND: list[Rebinding] = []


@attack("destinations", _looks_up_twice)
async def a_name_that_changes_its_address(egress: EgressFixture) -> None:
    names = Rebinding()
    names.addresses = dict(egress.name_server.addresses)
    _REBOUND[:] = [names]
    await egress.restart(name_server=names, allowed=("127.0.0.1/32",))
    client = await egress.tunnel()
    await client.request(egress.head(TOKEN))
    assert names.asked == [API]


@attack("destinations", without(request_head, "normal_host", lambda text: text.strip("[]")))
async def an_address_in_place_of_a_name(egress: EgressFixture) -> None:
    for spelling in (
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "127.0.0.1.",
    ):
        egress.name_server.addresses[spelling] = ["127.0.0.1"]
        client = await egress.client()
        with pytest.raises(ConnectRefusedError, match="not_a_name"):
            await client.connect(spelling, egress.other.port)
    assert_nothing_reached(egress.other)


# Attacks that exhaust resources


# -------------------------------------------------------------------------------- exhaustion


@attack("exhaustion", without(request_head, "LARGEST_HEAD", 1 << 30))
async def a_head_of_more_than_64_kb(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await client.send(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 9_000)
    status, _, _ = await asyncio.wait_for(client.response(), egress.patience)
    assert status == 431


@attack("exhaustion", without(ProxySession, "full", property(lambda _: False)))
async def more_connections_than_are_allowed(egress: EgressFixture) -> None:
    await egress.restart(limits=TWO)
    held = [await egress.client() for _ in range(2)]
    for client in held:
        await client.send(b"GET")
    await take_turns()
    third = await egress.client()
    await assert_refused(third, b"GET / HTTP/1.1\r\n\r\n", "too_many_connections")


TWO = SessionLimits(connections=2, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = SessionLimits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
TOTAL = SessionLimits(connections=64, idle_seconds=60, total_seconds=0.3, bytes_per_minute=1 << 40)
SLOW = SessionLimits(connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=600_000)


@attack("exhaustion", without(proxy.ClientConnection, "touched", property(lambda _: 1e12)))
async def a_connection_that_says_nothing(egress: EgressFixture) -> None:
    await egress.restart(limits=IDLE)
    client = await egress.tunnel()
    assert await asyncio.wait_for(client.receive(), egress.patience) == b""


async def _trickle(client: Client) -> None:
    while True:
        await client.send(b"X")
        await asyncio.sleep(0.05)


@attack(
    "exhaustion",
    lambda patch: patch.setattr(
        proxy.ClientConnection, "began", property(lambda _: 1e12, check_nothing), raising=False
    ),
)
async def a_connection_that_never_ends(egress: EgressFixture) -> None:
    await egress.restart(limits=TOTAL)
    client = await egress.tunnel()
    trickling = asyncio.create_task(_trickle(client))
    try:
        with suppress(ConnectionResetError):  # it was dropped with bytes that nobody had read
            assert await asyncio.wait_for(client.receive(), egress.patience) == b""
    finally:
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


@attack("exhaustion", without(BandwidthLimiter, "wait", lambda *_: 0.0))
async def more_bytes_than_a_minute_allows(egress: EgressFixture) -> None:
    await egress.restart(limits=SLOW)
    egress.api.behave = say(reply(bytes(1_000_000)))
    client = await egress.tunnel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.request(egress.head()), 1.0)
