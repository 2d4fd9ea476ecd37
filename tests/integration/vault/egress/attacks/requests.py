"""Attacks with a request: that two readers read differently, or with placeholders elsewhere."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from h11._headers import Headers
from h11._util import bytesify

from tests.integration.vault.egress.attacks.table import (
    TOKEN,
    attack,
    nothing,
    nothing_reached,
    refused,
    without,
)
from tollhouse.vault.egress import conversation, exchange, heads, ways

if TYPE_CHECKING:
    import pytest

    from tests.integration.vault.egress.house import Client, House
    from tollhouse.vault.egress.heads import Field

LOOSE = re.compile(rb"(?!)")

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
