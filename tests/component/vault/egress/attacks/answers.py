"""Attacks with a response that shows a value, or hides it from the redaction."""

from __future__ import annotations

from tests.component.vault.egress.attacks.table import (
    TOKEN,
    assert_refused,
    attack,
    check_nothing,
    without,
)
from tests.component.vault.egress.egress_fixture import VALUE, EgressFixture
from tests.support.providers.raw_server import Peer, reply, say
from tollhouse.kernel import redaction
from tollhouse.vault.egress import exchange

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


@attack("websocket", without(redaction.Redactor, "_places", lambda *_: ()))
async def a_frame_that_shows_the_value(egress: EgressFixture) -> None:
    egress.api.behave = _as_websocket
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, *UPGRADE))
    heard = b""
    while b"\x81" not in heard or len(heard.partition(b"\x81")[2]) < len(VALUE) + 1:
        heard += await client.receive()
    assert VALUE.encode() not in heard
