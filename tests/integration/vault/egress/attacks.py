r"""Attacks on the proxy: the bytes, what may reach a host's socket, and the rule that stops them.

    @attack(row, off)
    async def name(house): ...        asserts that it is stopped

`off` takes the rule away; the same attack must then be seen, or the test shows nothing.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
import trustme
from h11._headers import Headers
from h11._util import bytesify

from tests.integration.vault.egress.house import (
    API,
    OTHER,
    VALUE,
    Client,
    ConnectRefusedError,
    House,
    Names,
)
from tollhouse.outbound import checked, destinations
from tollhouse.testing.raw_server import Peer, RawServer, reply, say
from tollhouse.vault import resolver
from tollhouse.vault.egress import (
    certificates,
    connection,
    conversation,
    exchange,
    heads,
    redaction,
    targets,
    ways,
)
from tollhouse.vault.egress.messages import Limits
from tollhouse.vault.egress.pace import Pace
from tollhouse.vault.egress.session import Session
from tollhouse.vault.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.vault.egress.heads import Field
    from tollhouse.vault.types import Resolved

Off = Callable[[pytest.MonkeyPatch], None]
Run = Callable[[House], Awaitable[None]]
TOKEN = "Authorization: Bearer {{secret:token}}"
SUB = f"sub.{API}"
THIRD = "third.example"
LOOSE = re.compile(rb"(?!)")


class Attack(NamedTuple):
    """An attack, and how its rule is taken away."""

    row: str
    run: Run
    off: Off


ATTACKS: dict[str, Attack] = {}


def attack(row: str, off: Off) -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        ATTACKS[run.__name__] = Attack(row, run, off)
        return run

    return register


def without(owner: object, name: str, instead: object) -> Off:
    """Return what puts something else in the place of a rule."""
    return lambda patch: patch.setattr(owner, name, instead)


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


async def refused(client: Client, data: bytes, reason: str, method: str = "GET") -> None:
    _, headers, body = await client.ask(data, method)
    assert headers.get("x-tollhouse-egress") == reason
    assert VALUE.encode() not in body


def nothing_reached(server: RawServer) -> None:
    assert [bytes(peer.arrived) for peer in server.peers if peer.arrived] == []


# ----------------------------------------------------------------------------- wrong host


def _suffix_matches(resolved: Mapping[str, Resolved], name: str, host: str, **_: object) -> Verdict:
    hosts = resolved[name].secret.hosts or ()
    fits = any(host.endswith(each) for each in hosts)
    return Verdict.RELEASED if fits else Verdict.OTHER_HOST


def _suffix_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resolver, "verdict", _suffix_matches)
    patch.setattr(
        resolver,
        "is_bound",
        lambda resolved, host, **_: any(
            host.endswith(each) for found in resolved.values() for each in found.secret.hosts or ()
        ),
    )


@attack("wrong host", _suffix_off)
async def a_host_below_the_one_that_is_bound(house: House) -> None:
    house.names.addresses[SUB] = ["127.0.0.1"]
    house.names.ports[SUB] = house.api.port
    client = await house.client()
    await client.connect(SUB, house.api.port)
    # Nobody reads this tunnel, so the handshake is the host's own; its certificate is for others.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    await client.secure(trust, SUB)
    await client.say(house.head(TOKEN, host=SUB).replace(b":443", f":{house.api.port}".encode()))
    await client.response()
    assert b"{{secret:token}}" in house.api.peers[0].arrived


@attack("wrong host", without(resolver, "verdict", lambda *_, **__: Verdict.RELEASED))
async def a_secret_of_another_host(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head("X-Key: {{secret:second}}"), "other_host")
    nothing_reached(house.api)


# ------------------------------------------------- CONNECT, SNI and Host disagree


@attack("names disagree", without(certificates, "_asks_for", lambda _: lambda *_: None))
async def a_handshake_for_another_host(house: House) -> None:
    with pytest.raises((EOFError, ssl.SSLError)):
        await house.tunnel(API, name=OTHER)
    nothing_reached(house.api)


@attack("names disagree", without(connection, "server_name", lambda data: THIRD if data else None))
async def a_handshake_for_another_host_in_an_unread_tunnel(house: House) -> None:
    house.names.addresses[THIRD] = ["127.0.0.1"]
    house.names.ports[THIRD] = house.api.port
    client = await house.client()
    await client.connect(THIRD, house.api.port)
    trust = ssl.create_default_context()
    house.authority.configure_trust(trust)
    with pytest.raises(EOFError):
        await client.secure(trust, API)


@attack("names disagree", without(conversation, "check_host", nothing))
async def a_host_header_of_another_host(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head(TOKEN, host=OTHER), "host_disagrees")
    nothing_reached(house.api)


@attack("names disagree", without(conversation, "check_host", nothing))
async def a_host_header_of_another_port(house: House) -> None:
    client = await house.tunnel()
    head = f"GET / HTTP/1.1\r\nHost: {API}:1\r\n{TOKEN}\r\n\r\n".encode()
    await refused(client, head, "host_disagrees")
    nothing_reached(house.api)


@attack("names disagree", without(conversation, "check_origin_form", nothing))
async def an_absolute_target_inside_a_tunnel(house: House) -> None:
    client = await house.tunnel()
    head = house.head(TOKEN, request=f"GET http://{OTHER}/ HTTP/1.1")
    await refused(client, head, "not_origin_form")
    nothing_reached(house.api)


@attack("names disagree", without(conversation, "check_method", nothing))
async def a_trace_inside_a_tunnel(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head(TOKEN, request="TRACE / HTTP/1.1"), "method")
    nothing_reached(house.api)


# ------------------------------------------------------------------------------ plain http


async def _plainly(house: House, server: RawServer, *lines: str) -> tuple[Client, bytes]:
    target = f"plain.example:{server.port}"
    house.names.addresses["plain.example"] = ["127.0.0.1"]
    head = [f"GET http://{target}/ HTTP/1.1", f"Host: {target}", *lines, "", ""]
    return await house.client(), "\r\n".join(head).encode()


def _allows_plain_http(patch: pytest.MonkeyPatch) -> None:
    way = connection.ClientConnection._plain_way  # noqa: SLF001 - the rule that is taken away

    async def allowed(self: connection.ClientConnection, target: targets.Target) -> ways.Way:
        self._session.plain_http = True
        return await way(self, target)

    patch.setattr(connection.ClientConnection, "_plain_way", allowed)


@attack("plain http", _allows_plain_http)
async def http_without_tls_where_that_is_not_allowed(house: House) -> None:
    async with RawServer() as server:
        client, head = await _plainly(house, server)
        await refused(client, head, "tls_needed")
        nothing_reached(server)


async def _never_bound(*_: object) -> bool:
    return False


@attack(
    "plain http",
    lambda patch: patch.setattr(
        "tests.integration.vault.egress.house.FakeKeeper.is_bound", _never_bound
    ),
)
async def http_without_tls_to_a_host_with_secrets(house: House) -> None:
    house.keeper.secrets["plain"] = (VALUE, frozenset({"plain.example"}))
    await house.again(plain_http=True)
    async with RawServer() as server:
        client, head = await _plainly(house, server)
        await refused(client, head, "tls_for_secrets")
        nothing_reached(server)


@attack("plain http", without(ways, "names_in", lambda _: []))
async def a_placeholder_without_tls(house: House) -> None:
    await house.again(plain_http=True)
    async with RawServer() as server:
        client, head = await _plainly(house, server, TOKEN)
        await refused(client, head, "tls_for_secrets")
        nothing_reached(server)


# ------------------------------------------------------------------------------- smuggling


@attack("smuggling", without(conversation, "check_framing", nothing))
async def a_length_beside_chunks(house: House) -> None:
    client = await house.tunnel()
    head = house.head(
        TOKEN, "Content-Length: 4", "Transfer-Encoding: chunked", request="POST / HTTP/1.1"
    )
    await refused(client, head + b"0\r\n\r\n", "ambiguous_length", "POST")
    nothing_reached(house.api)


@attack("smuggling", without(heads, "_AMBIGUOUS", LOOSE))
async def a_line_that_ends_with_a_line_feed_alone(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head(f"X-A: b\n{TOKEN}"), "malformed")
    nothing_reached(house.api)


@attack("smuggling", without(heads, "_AMBIGUOUS", LOOSE))
async def a_line_that_is_folded(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head(TOKEN, "X-A: b\r\n\tX-C: d"), "malformed")
    nothing_reached(house.api)


def _lenient_values(headers: list[Field], _parsed: object = None) -> object:
    """Take the first of several lengths, and drop a transfer coding that is not known."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if bytesify(name).lower() != b"transfer-encoding" or bytesify(value) == b"chunked":
            found.setdefault(bytesify(name).lower(), bytesify(value))
    return Headers([(name, name, value) for name, value in found.items()])


@attack(
    "smuggling", lambda patch: patch.setattr("h11._events.normalize_and_validate", _lenient_values)
)
async def an_unknown_transfer_encoding(house: House) -> None:
    client = await house.tunnel()
    head = house.head(TOKEN, "Transfer-Encoding: xchunked", request="POST / HTTP/1.1")
    await refused(client, head, "malformed", "POST")
    nothing_reached(house.api)


@attack(
    "smuggling", lambda patch: patch.setattr("h11._events.normalize_and_validate", _lenient_values)
)
async def two_lengths(house: House) -> None:
    client = await house.tunnel()
    head = house.head(TOKEN, "Content-Length: 0", "Content-Length: 5", request="POST / HTTP/1.1")
    await refused(client, head, "malformed", "POST")
    nothing_reached(house.api)


@attack("smuggling", without(exchange, "passed_on", list))
async def fields_for_the_proxy_alone(house: House) -> None:
    client = await house.tunnel()
    await client.ask(
        house.head(TOKEN, "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: 5", "TE: trailers")
    )
    arrived = bytes(house.api.peers[0].arrived).lower()
    for name in (b"connection", b"x-hop", b"keep-alive", b"te:"):
        assert b"\r\n" + name not in arrived


def _keeps_chunks(patch: pytest.MonkeyPatch) -> None:
    async def raw(self: exchange.Exchange, event: object, outer: object, host: object) -> None:
        del event, outer
        await host.send(self._incoming.trailing_data[0] or b"5\r\nhelloXX0\r\n\r\n")  # type: ignore[attr-defined]

    patch.setattr(exchange.Exchange, "_send_body", raw)
    patch.setattr(exchange, "_next_of_request", lambda _: exchange.h11.NEED_DATA)


@attack("smuggling", _keeps_chunks)
async def a_chunk_that_does_not_end(house: House) -> None:
    client = await house.tunnel()
    head = house.head(TOKEN, "Transfer-Encoding: chunked", request="POST / HTTP/1.1")
    await client.say(head + b"5\r\nhelloXX0\r\n\r\n")
    await asyncio.wait([asyncio.create_task(_silent(client))], timeout=0.3)
    assert b"XX" not in b"".join(bytes(peer.arrived) for peer in house.api.peers)


async def _silent(client: Client) -> None:
    try:
        await client.response("POST")
    except (EOFError, exchange.h11.RemoteProtocolError):
        return


# ------------------------------------------------------------------ placeholder elsewhere


@attack("placeholder elsewhere", without(ways, "check_target", nothing))
async def a_placeholder_in_the_url(house: House) -> None:
    client = await house.tunnel()
    head = house.head(request="GET /?key={{secret:token}} HTTP/1.1")
    await refused(client, head, "secret_in_url")
    nothing_reached(house.api)


@attack("placeholder elsewhere", without(ways, "check_target", nothing))
async def a_placeholder_in_the_url_in_escapes(house: House) -> None:
    client = await house.tunnel()
    head = house.head(request="GET /?key=%7B%7Bsecret%3Atoken%7d%7d HTTP/1.1")
    await refused(client, head, "secret_in_url")
    nothing_reached(house.api)


@attack("placeholder elsewhere", without(ways, "names_in", lambda _: []))
async def a_name_that_nobody_knows(house: House) -> None:
    client = await house.tunnel()
    await refused(client, house.head("X-Key: {{secret:nobody}}"), "unknown_secret")
    nothing_reached(house.api)


# -------------------------------------------------------------------- upstream certificate


def _trusts_anybody(patch: pytest.MonkeyPatch) -> None:
    connect = ways.Network.connect_securely

    async def loosely(self: ways.Network, target: object) -> object:
        self._trust.check_hostname = False  # pyright: ignore[reportPrivateUsage]
        self._trust.verify_mode = ssl.CERT_NONE  # pyright: ignore[reportPrivateUsage]
        return await connect(self, target)  # type: ignore[arg-type]

    patch.setattr(ways.Network, "connect_securely", loosely)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_another_host(house: House) -> None:
    house.keeper.secrets["wrong"] = (VALUE, frozenset({"wrong.example"}))
    house.names.addresses["wrong.example"] = ["127.0.0.1"]
    with pytest.raises(ConnectRefusedError, match="certificate"):
        await house.tunnel("wrong.example", port=house.api.port)
    nothing_reached(house.api)


@attack("upstream certificate", _trusts_anybody)
async def a_certificate_of_nobody_that_is_trusted(house: House) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(API).configure_cert(context)
    async with RawServer(ssl_context=context) as server:
        house.names.ports[API] = server.port
        with pytest.raises(ConnectRefusedError, match="certificate"):
            await house.tunnel()
        nothing_reached(server)


# ------------------------------------------------------------------- addresses and names


@attack("destinations", without(checked, "refusal", nothing))
async def a_name_with_an_address_of_ours(house: House) -> None:
    await house.again(allowed=())
    with pytest.raises(ConnectRefusedError, match="destination"):
        await house.tunnel()
    nothing_reached(house.api)


@attack("destinations", without(checked, "refusal", nothing))
async def a_name_with_one_address_of_ours_beside_others(house: House) -> None:
    await house.again(allowed=("127.0.0.1/32",))
    house.names.addresses[API] = ["127.0.0.1", "127.0.0.2"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await house.tunnel()
    nothing_reached(house.api)


@attack("destinations", without(destinations, "METADATA", frozenset()))
async def a_metadata_address_in_a_network_that_is_open(house: House) -> None:
    await house.again(allowed=("0.0.0.0/0",))
    # Reserved for documentation: nobody is there, where the rule is off.
    house.names.addresses[API] = ["168.63.129.16", "192.0.2.1"]
    with pytest.raises(ConnectRefusedError, match="destination"):
        await asyncio.wait_for(house.tunnel(), 2)


class Rebinding(Names):
    """Shows an address that may be called first, and then another one."""

    async def __call__(self, host: str, port: int) -> object:  # type: ignore[override]
        found = await super().__call__(host, port)
        self.addresses[host] = ["127.0.0.2"]
        return found


def _looks_up_twice(patch: pytest.MonkeyPatch) -> None:
    dial = checked.connect_to

    async def again(addresses: object) -> object:
        del addresses
        names = _REBOUND[0]
        return await dial(await names(API, 0))  # type: ignore[arg-type]

    patch.setattr(checked, "connect_to", again)


_REBOUND: list[Rebinding] = []


@attack("destinations", _looks_up_twice)
async def a_name_that_changes_its_address(house: House) -> None:
    names = Rebinding()
    names.addresses = dict(house.names.addresses)
    _REBOUND[:] = [names]
    await house.again(names=names, allowed=("127.0.0.1/32",))
    client = await house.tunnel()
    await client.ask(house.head(TOKEN))
    assert names.asked == [API]


@attack("destinations", without(targets, "normal_host", lambda text: text.strip("[]")))
async def an_address_in_place_of_a_name(house: House) -> None:
    for spelling in (
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "[::1]",
        "127.0.0.1.",
    ):
        house.names.addresses[spelling] = ["127.0.0.1"]
        client = await house.client()
        with pytest.raises(ConnectRefusedError, match="not_a_name"):
            await client.connect(spelling, house.other.port)
    nothing_reached(house.other)


# ------------------------------------------------------------------------------------ echo


@attack("echo", without(redaction.Redactor, "_places", lambda *_: ()))
async def an_answer_that_shows_the_value(house: House) -> None:
    house.api.behave = say(reply(f"you said {VALUE}".encode()))
    client = await house.tunnel()
    _, _, body = await client.ask(house.head(TOKEN))
    assert VALUE.encode() not in body


@attack("echo", without(exchange, "_UNENCODED", frozenset({"", "identity", b"gzip"})))
async def an_answer_that_cannot_be_read(house: House) -> None:
    house.api.behave = say(reply(b"\x1f\x8b...", fields=b"Content-Encoding: gzip\r\n"))
    client = await house.tunnel()
    await refused(client, house.head(TOKEN), "compressed")


@attack("echo", without(exchange, "_NOT_SENT_WITH_VALUES", frozenset()))
async def parts_of_answers_and_compressed_ones(house: House) -> None:
    client = await house.tunnel()
    await client.ask(house.head(TOKEN, "Accept-Encoding: gzip, br", "Range: bytes=3-9"))
    arrived = bytes(house.api.peers[0].arrived)
    assert b"accept-encoding: identity\r\n" in arrived
    assert b"gzip" not in arrived
    assert b"range" not in arrived


# ------------------------------------------------------------------------------- websocket


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


async def _as_websocket(peer: Peer) -> None:
    await peer.play(
        SWITCH + b"Sec-WebSocket-Accept: x\r\n\r\n", f"\x81\x20{VALUE}".encode("latin-1")
    )
    await peer.gone()


UPGRADE = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: eA==", "Sec-WebSocket-Extensions: permessage-deflate"),
)


@attack("websocket", without(exchange, "_NOT_SENT_WITH_VALUES", frozenset()))
async def a_websocket_that_is_compressed(house: House) -> None:
    house.api.behave = _as_websocket
    client = await house.tunnel()
    await client.say(house.head(TOKEN, *UPGRADE))
    assert (await client.hear()).startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in bytes(house.api.peers[0].arrived)


@attack("websocket", without(exchange, "check_extensions", nothing))
async def a_websocket_that_is_compressed_unasked(house: House) -> None:
    agreed = b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    house.api.behave = say(SWITCH + agreed)
    client = await house.tunnel()
    await client.say(house.head(TOKEN, *UPGRADE))
    assert b"x-tollhouse-egress: extension\r\n" in await client.hear()


@attack("websocket", without(redaction.Redactor, "_places", lambda *_: ()))
async def a_frame_that_shows_the_value(house: House) -> None:
    house.api.behave = _as_websocket
    client = await house.tunnel()
    await client.say(house.head(TOKEN, *UPGRADE))
    heard = b""
    while b"\x81" not in heard or len(heard.partition(b"\x81")[2]) < len(VALUE) + 1:
        heard += await client.hear()
    assert VALUE.encode() not in heard


# -------------------------------------------------------------------------------- exhaustion


@attack("exhaustion", without(heads, "LARGEST_HEAD", 1 << 30))
async def a_head_of_more_than_64_kb(house: House) -> None:
    client = await house.tunnel()
    await client.say(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 9_000)
    status, _, _ = await asyncio.wait_for(client.response(), 2)
    assert status == 431


@attack("exhaustion", without(Session, "full", property(lambda _: False)))
async def more_connections_than_are_allowed(house: House) -> None:
    await house.again(limits=TWO)
    held = [await house.client() for _ in range(2)]
    for client in held:
        await client.say(b"GET")
    await asyncio.sleep(0.05)
    third = await house.client()
    await refused(third, b"GET / HTTP/1.1\r\n\r\n", "too_many_connections")


TWO = Limits(connections=2, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = Limits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
TOTAL = Limits(connections=64, idle_seconds=60, total_seconds=0.3, bytes_per_minute=1 << 40)
SLOW = Limits(connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=600_000)


@attack("exhaustion", without(connection.ClientConnection, "touched", property(lambda _: 1e12)))
async def a_connection_that_says_nothing(house: House) -> None:
    await house.again(limits=IDLE)
    client = await house.tunnel()
    assert await asyncio.wait_for(client.hear(), 2) == b""


async def _trickle(client: Client) -> None:
    while True:
        await client.say(b"X")
        await asyncio.sleep(0.05)


@attack(
    "exhaustion",
    lambda patch: patch.setattr(
        connection.ClientConnection, "began", property(lambda _: 1e12, nothing), raising=False
    ),
)
async def a_connection_that_never_ends(house: House) -> None:
    await house.again(limits=TOTAL)
    client = await house.tunnel()
    trickling = asyncio.create_task(_trickle(client))
    try:
        with suppress(ConnectionResetError):  # it was dropped with bytes that nobody had read
            assert await asyncio.wait_for(client.hear(), 6) == b""
    finally:
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


@attack("exhaustion", without(Pace, "wait", lambda *_: 0.0))
async def more_bytes_than_a_minute_allows(house: House) -> None:
    await house.again(limits=SLOW)
    house.api.behave = say(reply(bytes(1_000_000)))
    client = await house.tunnel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.ask(house.head()), 1.0)
