"""Attacks with a host: another one, names that disagree, one without TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.vault.egress.attacks.table import (
    TOKEN,
    attack,
    nothing,
    nothing_reached,
    refused,
    without,
)
from tests.integration.vault.egress.house import API, OTHER, VALUE, Client, House
from tollhouse.testing.raw_server import RawServer
from tollhouse.vault import resolver
from tollhouse.vault.egress import certificates, connection, conversation, targets, ways
from tollhouse.vault.types import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.vault.types import Resolved

SUB = f"sub.{API}"
THIRD = "third.example"

# ----------------------------------------------------------------------------- wrong port


def _any_port(patch: pytest.MonkeyPatch) -> None:
    def receiving(*args: Any, **_: object) -> ways.HostWay:
        return ways.HostWay(*args, receives=True)

    patch.setattr(connection, "HostWay", receiving)


@attack("wrong port", _any_port)
async def another_port_of_a_host_that_is_bound(house: House) -> None:
    await house.again(allow_ports=frozenset())
    client = await house.tunnel()
    await refused(client, house.head(TOKEN), "other_port")
    nothing_reached(house.api)


@attack("wrong port", _any_port)
async def a_port_that_is_allowed_for_another_host(house: House) -> None:
    await house.again(allow_ports=frozenset({targets.Target(OTHER, house.api.port)}))
    client = await house.tunnel()
    await refused(client, house.head(TOKEN), "other_port")
    nothing_reached(house.api)


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
