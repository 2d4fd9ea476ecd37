"""Attacks with a request that two parsers read differently, or with misplaced placeholders."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from h11._headers import Headers
from h11._util import bytesify

from tests.component.vault.egress.attacks.table import (
    TOKEN,
    assert_nothing_reached,
    assert_refused,
    attack,
    check_nothing,
    without,
)
from tollhouse.vault.egress import exchange, request_head, routes

if TYPE_CHECKING:
    import pytest

    from tests.component.vault.egress.egress_fixture import Client, EgressFixture
    from tollhouse.vault.egress.request_head import Field

LOOSE = re.compile(rb"(?!)")

# ------------------------------------------------------------------------------- smuggling


@attack("smuggling", without(exchange, "check_framing", check_nothing))
async def a_length_beside_chunks(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(
        TOKEN, "Content-Length: 4", "Transfer-Encoding: chunked", request="POST / HTTP/1.1"
    )
    await assert_refused(client, head + b"0\r\n\r\n", "ambiguous_length", "POST")
    assert_nothing_reached(egress.api)


@attack("smuggling", without(request_head, "_AMBIGUOUS", LOOSE))
async def a_line_that_ends_with_a_line_feed_alone(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await assert_refused(client, egress.head(f"X-A: b\n{TOKEN}"), "malformed")
    assert_nothing_reached(egress.api)


@attack("smuggling", without(request_head, "_AMBIGUOUS", LOOSE))
async def a_line_that_is_folded(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await assert_refused(client, egress.head(TOKEN, "X-A: b\r\n\tX-C: d"), "malformed")
    assert_nothing_reached(egress.api)


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
async def an_unknown_transfer_encoding(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(TOKEN, "Transfer-Encoding: xchunked", request="POST / HTTP/1.1")
    await assert_refused(client, head, "malformed", "POST")
    assert_nothing_reached(egress.api)


@attack(
    "smuggling", lambda patch: patch.setattr("h11._events.normalize_and_validate", _lenient_values)
)
async def two_lengths(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(TOKEN, "Content-Length: 0", "Content-Length: 5", request="POST / HTTP/1.1")
    await assert_refused(client, head, "malformed", "POST")
    assert_nothing_reached(egress.api)


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


# ------------------------------------------------------------------ placeholder elsewhere


@attack("placeholder elsewhere", without(routes, "check_target", check_nothing))
async def a_placeholder_in_the_url(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(request="GET /?key={{secret:token}} HTTP/1.1")
    await assert_refused(client, head, "secret_in_url")
    assert_nothing_reached(egress.api)


@attack("placeholder elsewhere", without(routes, "check_target", check_nothing))
async def a_placeholder_in_the_url_in_escapes(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    head = egress.head(request="GET /?key=%7B%7Bsecret%3Atoken%7d%7d HTTP/1.1")
    await assert_refused(client, head, "secret_in_url")
    assert_nothing_reached(egress.api)


@attack("placeholder elsewhere", without(routes, "names_in", lambda _: []))
async def a_name_that_nobody_knows(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await assert_refused(client, egress.head("X-Key: {{secret:nobody}}"), "unknown_secret")
    assert_nothing_reached(egress.api)
