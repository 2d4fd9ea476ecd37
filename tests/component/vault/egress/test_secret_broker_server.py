"""What of a host's answers reaches the client, on a connection that has held a value."""

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from tests.component.vault.egress.attacks.answers import SWITCH, UPGRADE
from tests.component.vault.egress.egress_fixture import VALUE, Client, EgressFixture
from tests.support.providers.raw_server import Peer, reply, say
from tests.support.waiting import until
from tollhouse.kernel.redaction import forms_of

TOKEN = "Authorization: Bearer {{secret:token}}"
HIDDEN = b"*" * len(VALUE)
HI = b"\x81\x02hi"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


# Requests that follow


async def test_a_value_is_masked_in_the_answer_to_a_later_request(
    egress: EgressFixture, client: Client
) -> None:
    kept: list[bytes] = []

    async def remember(peer: Peer) -> None:
        kept.append(peer.head)
        await peer.play(reply(kept[0]))

    egress.api.behave = remember
    await client.request(egress.head(TOKEN))
    _, _, body = await client.request(egress.head())
    assert VALUE.encode() in kept[0]
    assert kept[0].replace(VALUE.encode(), HIDDEN) == body


async def test_what_is_to_be_masked_is_prepared_beside_the_loop(
    egress: EgressFixture, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[threading.Thread] = []

    def recorded(value: str) -> frozenset[bytes]:
        prepared.append(threading.current_thread())
        return forms_of(value)

    monkeypatch.setattr("tollhouse.kernel.redaction.forms_of", recorded)
    await client.request(egress.head(TOKEN))
    await client.request(egress.head(TOKEN))
    assert len(prepared) == 1
    assert threading.current_thread() not in prepared


async def test_an_answer_to_a_later_request_has_to_be_readable_too(
    egress: EgressFixture, client: Client
) -> None:
    await client.request(egress.head(TOKEN))
    egress.api.behave = say(reply(b"\x1f\x8b", fields=b"Content-Encoding: gzip\r\n"))
    status, headers, _ = await client.request(egress.head("Accept-Encoding: gzip"))
    assert (status, headers["x-tollhouse-egress"]) == (502, "compressed")
    assert b"gzip" not in egress.api.peers[0].arrived


async def test_a_host_that_says_more_than_it_was_asked_is_not_asked_again(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(reply(b"asked") + reply(b"unasked"))
    assert (await client.request(egress.head(TOKEN)))[2] == b"asked"
    assert await asyncio.wait_for(client.receive_all(), 20) == b""


async def test_what_a_host_sends_without_a_request_is_not_the_next_answer(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(reply(b"first"))
    assert (await client.request(egress.head(TOKEN)))[2] == b"first"
    egress.api.peers[0].transport.write(reply(b"unasked"))
    (connection,) = egress.session.connections
    to_host = connection._to_host  # type: ignore[attr-defined]  # noqa: SLF001 - where it arrives
    await until(lambda: not to_host.quiet)
    egress.api.behave = say(reply(b"second"))
    assert (await client.request(egress.head(TOKEN)))[2] == b"second"
    assert [peer.requests for peer in egress.api.peers] == [1, 1]


# Fields


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Content-Encoding", "Set-Cookie"])
async def test_an_answer_that_calls_a_field_of_the_clients_its_own_is_refused(
    egress: EgressFixture, client: Client, name: str
) -> None:
    fields = f"Connection: {name}\r\n".encode()
    egress.api.behave = say(reply(b"body", fields=fields))
    status, headers, body = await client.request(egress.head(TOKEN))
    assert (status, headers["x-tollhouse-egress"]) == (502, "broken")
    assert b"Connection" not in body


@pytest.mark.parametrize("lines", [(), (TOKEN,)], ids=["without a value", "with a value"])
async def test_no_host_speaks_as_the_proxy(
    egress: EgressFixture, client: Client, lines: tuple[str, ...]
) -> None:
    fields = b"X-Tollhouse-Egress: unknown_secret\r\nAlt-Svc: h3=':443'\r\n"
    egress.api.behave = say(reply(b"", "403 Forbidden", fields))
    status, headers, _ = await client.request(egress.head(*lines))
    assert status == 403
    assert not {"x-tollhouse-egress", "alt-svc"} & headers.keys()


async def test_no_host_speaks_as_the_proxy_when_it_switches_to_a_websocket(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(SWITCH + b"X-Tollhouse-Egress: password\r\nAlt-Svc: h3\r\n\r\n" + HI)
    head = (await switched(egress, client)).lower()
    assert b"upgrade: websocket" in head
    assert b"x-tollhouse-egress" not in head
    assert b"alt-svc" not in head


async def test_a_host_may_agree_to_an_extension_that_the_client_offered(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(SWITCH + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n" + HI)
    head = await switched(egress, client, *UPGRADE)
    assert b"permessage-deflate" in head


async def switched(egress: EgressFixture, client: Client, *lines: str) -> bytes:
    """Return the head that a client gets in which the host agrees, once `HI` has come."""
    await client.send(egress.head(*(lines or (TOKEN, *UPGRADE))))
    heard = b""
    while not heard.endswith(HI):
        piece = await client.receive()
        assert piece, heard
        heard += piece
    head, end, frame = heard.partition(b"\r\n\r\n")
    assert (end, frame) == (b"\r\n\r\n", HI)
    return head


# Pieces


async def test_chunks_that_come_together_go_on_together(
    egress: EgressFixture, client: Client
) -> None:
    """A head and an encryption for every byte would cost far more than its sender."""
    egress.api.behave = say(CHUNKED, b"1\r\nx\r\n" * 2_000 + b"0\r\n\r\n")
    await client.send(egress.head(TOKEN))
    heard = b""
    while not heard.endswith(b"\r\n0\r\n\r\n"):
        heard += await client.receive()
    assert heard.count(b"x") == 2_000
    assert chunks_in(heard) <= 20


async def test_chunks_that_a_client_sends_together_go_on_together(
    egress: EgressFixture, client: Client
) -> None:
    head = egress.head("Transfer-Encoding: chunked", request="POST / HTTP/1.1")
    egress.api.behave = say(reply(b"early"))
    body = b"1\r\nx\r\n" * 2_000 + b"0\r\n\r\n"
    assert (await client.request(head + body, "POST"))[2] == b"early"
    arrived = egress.api.peers[0].arrived
    await until(lambda: arrived.endswith(b"\r\n0\r\n\r\n"))
    assert arrived.partition(b"\r\n\r\n")[2].count(b"x") == 2_000
    assert chunks_in(bytes(arrived)) <= 20


def chunks_in(message: bytes) -> int:
    """Return how many chunks a body of nothing but `x` is written in."""
    return message.partition(b"\r\n\r\n")[2].count(b"x\r\n")


# An end in order


async def test_a_websocket_that_ends_in_order_is_no_error(
    egress: EgressFixture, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def echo(peer: Peer) -> None:
        await peer.play(SWITCH + b"\r\n" + HI)
        await peer.wait_closed()
        peer.transport.close()

    egress.api.behave = echo
    with capture_logs() as logs:
        await switched(egress, client)
        client.close_notify()
        assert await asyncio.wait_for(client.receive_all(), 20) == b""
        client.half_close()
        await until(lambda: not egress.session.connections)
    assert (logs, caplog.records) == ([], [])
