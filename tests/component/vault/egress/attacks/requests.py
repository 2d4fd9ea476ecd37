"""Attacks with the request: the wrong host, two readings of one head, misplaced placeholders."""

import asyncio
import re
import ssl
from collections.abc import Mapping
from typing import Any

import pytest
from h11._headers import Headers
from h11._util import bytesify

from tests.component.vault.egress.attacks.table import (
    TOKEN,
    assert_nothing_reached,
    assert_refused,
    attack,
    check_nothing,
    is_refused,
    without,
)
from tests.component.vault.egress.egress_fixture import API, OTHER, VALUE, Client, EgressFixture
from tests.support.providers.raw_server import RawServer
from tollhouse.vault import policy
from tollhouse.vault.egress import certificates, exchange, proxy, request_head, routes
from tollhouse.vault.egress.request_head import Field
from tollhouse.vault.types import Resolved, Verdict

SUB = f"sub.{API}"
THIRD = "third.example"

# ----------------------------------------------------------------------------- wrong port


def _any_port(patch: pytest.MonkeyPatch) -> None:
    def receiving(*args: Any, **_: object) -> routes.HostRoute:
        return routes.HostRoute(*args, receives=True)

    patch.setattr(proxy, "HostRoute", receiving)


@attack("wrong port", _any_port)
async def another_port_of_a_host_that_is_bound(egress: EgressFixture) -> None:
    await egress.restart(allow_ports=frozenset())
    client = await egress.tunnel()
    await assert_refused(client, egress.head(TOKEN), "other_port")
    assert_nothing_reached(egress.api)


@attack("wrong port", _any_port)
async def a_port_that_is_allowed_for_another_host(egress: EgressFixture) -> None:
    await egress.restart(allow_ports=frozenset({request_head.Target(OTHER, egress.api.port)}))
    client = await egress.tunnel()
    await assert_refused(client, egress.head(TOKEN), "other_port")
    assert_nothing_reached(egress.api)


# ----------------------------------------------------------------------------- wrong host


def _suffix_matches(resolved: Mapping[str, Resolved], name: str, host: str, **_: object) -> Verdict:
    hosts = resolved[name].secret.hosts or ()
    fits = any(host.endswith(each) for each in hosts)
    return Verdict.RELEASED if fits else Verdict.OTHER_HOST


def _suffix_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(policy, "verdict", _suffix_matches)
    patch.setattr(
        policy,
        "is_bound",
        lambda resolved, host, **_: any(
            host.endswith(each) for found in resolved.values() for each in found.secret.hosts or ()
        ),
    )


@attack("wrong host", _suffix_off)
async def a_host_below_the_one_that_is_bound(egress: EgressFixture) -> None:
    egress.name_server.addresses[SUB] = ["127.0.0.1"]
    egress.name_server.ports[SUB] = egress.api.port
    client = await egress.client()
    await client.connect(SUB, egress.api.port)
    # Nobody reads this tunnel, so the handshake is the host's own; its certificate is for others.
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    await client.handshake(trust, SUB)
    await client.send(egress.head(TOKEN, host=SUB).replace(b":443", f":{egress.api.port}".encode()))
    await client.response()
    assert b"{{secret:token}}" in egress.api.peers[0].arrived


# ------------------------------------------------- CONNECT, SNI and Host disagree


@attack("names disagree", without(certificates, "_asks_for", lambda _: lambda *_: None))
async def a_handshake_for_another_host(egress: EgressFixture) -> None:
    with pytest.raises((EOFError, ssl.SSLError)):
        await egress.tunnel(API, name=OTHER)
    assert_nothing_reached(egress.api)


@attack("names disagree", without(proxy, "server_name", lambda data: THIRD if data else None))
async def a_handshake_for_another_host_in_an_unread_tunnel(egress: EgressFixture) -> None:
    egress.name_server.addresses[THIRD] = ["127.0.0.1"]
    egress.name_server.ports[THIRD] = egress.api.port
    client = await egress.client()
    await client.connect(THIRD, egress.api.port)
    trust = ssl.create_default_context()
    egress.authority.configure_trust(trust)
    with pytest.raises(EOFError):
        await client.handshake(trust, API)


@attack("names disagree", without(exchange, "check_host", check_nothing))
async def a_host_header_of_another_port(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = f"GET / HTTP/1.1\r\nHost: {API}:1\r\n{TOKEN}\r\n\r\n".encode()
    await assert_refused(client, head, "host_disagrees")
    assert_nothing_reached(egress.api)


# ------------------------------------------------------------------------------ plain http


async def _plainly(egress: EgressFixture, server: RawServer, *lines: str) -> tuple[Client, bytes]:
    target = f"plain.example:{server.port}"
    egress.name_server.addresses["plain.example"] = ["127.0.0.1"]
    head = [f"GET http://{target}/ HTTP/1.1", f"Host: {target}", *lines, "", ""]
    return await egress.client(), "\r\n".join(head).encode()


def _allows_plain_http(patch: pytest.MonkeyPatch) -> None:
    route = proxy.ClientConnection._plain_route  # noqa: SLF001 - the rule that is taken away

    async def allowed(self: proxy.ClientConnection, target: request_head.Target) -> routes.Route:
        self._session.plain_http = True
        return await route(self, target)

    patch.setattr(proxy.ClientConnection, "_plain_route", allowed)


@attack("plain http", _allows_plain_http)
async def http_without_tls_where_that_is_not_allowed(egress: EgressFixture) -> None:
    async with RawServer() as server:
        client, head = await _plainly(egress, server)
        await assert_refused(client, head, "tls_needed")
        assert_nothing_reached(server)


async def _never_bound(*_: object) -> bool:
    return False


@attack(
    "plain http",
    lambda patch: patch.setattr(
        "tests.component.vault.egress.egress_fixture.FakeSecretBroker.is_bound", _never_bound
    ),
)
async def http_without_tls_to_a_host_with_secrets(egress: EgressFixture) -> None:
    egress.broker.secrets["plain"] = (VALUE, frozenset({"plain.example"}))
    await egress.restart(plain_http=True)
    async with RawServer() as server:
        client, head = await _plainly(egress, server)
        await assert_refused(client, head, "tls_for_secrets")
        assert_nothing_reached(server)


@attack("plain http", without(routes, "names_in", lambda _: []))
async def a_placeholder_without_tls(egress: EgressFixture) -> None:
    await egress.restart(plain_http=True)
    async with RawServer() as server:
        client, head = await _plainly(egress, server, TOKEN)
        await assert_refused(client, head, "tls_for_secrets")
        assert_nothing_reached(server)


# Attacks with a request that two parsers read differently, or with misplaced placeholders


LOOSE = re.compile(rb"(?!)")

# ------------------------------------------------------------------------------- smuggling


def _lenient_values(headers: list[Field], _parsed: object = None) -> object:
    """Take the first of several lengths, and drop a transfer coding that is not known."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if bytesify(name).lower() != b"transfer-encoding" or bytesify(value) == b"chunked":
            found.setdefault(bytesify(name).lower(), bytesify(value))
    return Headers([(name, name, value) for name, value in found.items()])


@attack("smuggling", without(exchange, "passed_on", list))
async def fields_for_the_proxy_alone(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await client.request(
        egress.head(TOKEN, "Connection: X-Hop", "X-Hop: 1", "Keep-Alive: 5", "TE: trailers")
    )
    arrived = bytes(egress.api.peers[0].arrived).lower()
    for name in (b"connection", b"x-hop", b"keep-alive", b"te:"):
        assert b"\r\n" + name not in arrived


def _keeps_chunks(patch: pytest.MonkeyPatch) -> None:
    async def raw(self: exchange.HttpExchange, event: object) -> None:
        del event
        await self.host.send(self.incoming.trailing_data[0] or b"5\r\nhelloXX0\r\n\r\n")

    def unread(connection: exchange.h11.Connection, otherwise: Exception) -> exchange.Event:
        if connection.our_role is exchange.h11.SERVER:
            return exchange.h11.NEED_DATA
        return following(connection, otherwise)

    following = exchange._next  # noqa: SLF001 - it goes on reading the host's answer
    patch.setattr(exchange.HttpExchange, "_send_body", raw)
    patch.setattr(exchange, "_next", unread)


@attack("smuggling", _keeps_chunks)
async def a_chunk_that_does_not_end(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(TOKEN, "Transfer-Encoding: chunked", request="POST / HTTP/1.1")
    await client.send(head + b"5\r\nhelloXX0\r\n\r\n")
    await asyncio.wait([asyncio.create_task(_silent(client))], timeout=0.3)
    assert b"XX" not in b"".join(bytes(peer.arrived) for peer in egress.api.peers)


async def _silent(client: Client) -> None:
    try:
        await client.response("POST")
    except (EOFError, exchange.h11.RemoteProtocolError):
        return


# ------------------------------------------------------------------------ refused at once

POST, CHUNKED = "POST / HTTP/1.1", "Transfer-Encoding: chunked"


def _leniently(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("h11._events.normalize_and_validate", _lenient_values)


is_refused(
    "wrong host",
    without(policy, "verdict", lambda *_, **__: Verdict.RELEASED),
    "other_host",
    "a_secret_of_another_host",
    lines=("X-Key: {{secret:second}}",),
)
for name, rule, reason, more in (
    ("a_host_header_of_another_host", "check_host", "host_disagrees", {"host": OTHER}),
    (
        "an_absolute_target_inside_a_tunnel",
        "check_origin_form",
        "not_origin_form",
        {"request": f"GET http://{OTHER}/ HTTP/1.1"},
    ),
    ("a_trace_inside_a_tunnel", "check_method", "method", {"request": "TRACE / HTTP/1.1"}),
):
    is_refused("names disagree", without(exchange, rule, check_nothing), reason, name, **more)
is_refused(
    "smuggling",
    without(exchange, "check_framing", check_nothing),
    "ambiguous_length",
    "a_length_beside_chunks",
    lines=(TOKEN, "Content-Length: 4", CHUNKED),
    request=POST,
    body=b"0\r\n\r\n",
)
for name, off, request, lines in (
    (
        "a_line_that_ends_with_a_line_feed_alone",
        without(request_head, "_AMBIGUOUS", LOOSE),
        "GET / HTTP/1.1",
        (f"X-A: b\n{TOKEN}",),
    ),
    (
        "a_line_that_is_folded",
        without(request_head, "_AMBIGUOUS", LOOSE),
        "GET / HTTP/1.1",
        (TOKEN, "X-A: b\r\n\tX-C: d"),
    ),
    ("an_unknown_transfer_encoding", _leniently, POST, (TOKEN, "Transfer-Encoding: xchunked")),
    ("two_lengths", _leniently, POST, (TOKEN, "Content-Length: 0", "Content-Length: 5")),
):
    is_refused("smuggling", off, "malformed", name, lines=lines, request=request)
for name, key in (
    ("a_placeholder_in_the_url", "{{secret:token}}"),
    ("a_placeholder_in_the_url_in_escapes", "%7B%7Bsecret%3Atoken%7d%7d"),
):
    is_refused(
        "placeholder elsewhere",
        without(routes, "check_target", check_nothing),
        "secret_in_url",
        name,
        lines=(),
        request=f"GET /?key={key} HTTP/1.1",
    )
is_refused(
    "placeholder elsewhere",
    without(routes, "names_in", lambda _: []),
    "unknown_secret",
    "a_name_that_nobody_knows",
    lines=("X-Key: {{secret:nobody}}",),
)
