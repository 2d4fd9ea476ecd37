"""How many a session lets in, and how whoever is inside has to leave."""

import asyncio
import socket

import pytest

from tests.component.vault.egress.egress_fixture import API, OTHER, Client, EgressFixture
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import say
from tests.support.waiting import until
from tollhouse.vault.egress import exchange, proxy, streams
from tollhouse.vault.egress.messages import OpenSession, SessionLimits
from tollhouse.vault.egress.proxy import ProxySession

TOKEN = "Authorization: Bearer {{secret:token}}"
ONE = SessionLimits(connections=1, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = SessionLimits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
FOREVER = 600.0
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n"


async def full(egress: EgressFixture, patch: pytest.MonkeyPatch) -> None:
    """Fill the proxy with rejected connections that do not time out."""
    patch.setattr(streams, "_GOODBYE_SECONDS", FOREVER)
    await egress.restart(limits=ONE)
    await egress.client()
    await until(lambda: egress.session.full)


async def rejected_connections(egress: EgressFixture, times: int) -> list[Client]:
    """Return clients that were told that there are too many, and stay nevertheless."""
    clients = [await egress.client() for _ in range(times)]
    for client in clients:
        assert (await client.receive()).startswith(b"HTTP/1.1 429 ")
    return clients


async def streaming(egress: EgressFixture) -> Client:
    """Return a client in the middle of an answer, which has cost a value."""
    egress.api.behave = say(STREAM, End.HANG)
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN))
    heard = b""
    while b"data: one" not in heard:
        heard += await client.receive()
    return client


# Too many


async def test_no_more_than_so_many_are_told_at_once_that_there_are_too_many(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(egress, monkeypatch)
    await rejected_connections(egress, proxy.MOST_REJECTED)
    assert await (await egress.client()).receive_all() == b""


async def test_who_leaves_makes_room_for_another_one_to_be_told(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(egress, monkeypatch)
    clients = await rejected_connections(egress, proxy.MOST_REJECTED)
    clients[0].abort()
    await until(lambda: len(egress.session.rejected_connections) < proxy.MOST_REJECTED)
    await rejected_connections(egress, 1)


async def test_one_session_does_not_use_up_what_another_one_is_told(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(egress, monkeypatch)
    await rejected_connections(egress, proxy.MOST_REJECTED)
    path = str(egress.folder / "second.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        await egress.proxy.open(OpenSession("second", None, None, plain_http=False), listener.dup())
    second = egress.proxy._sessions["second"]  # noqa: SLF001 - nothing tells that it is full
    egress.clients.append(Client(*await asyncio.open_unix_connection(path)))
    await until(lambda: second.full)
    egress.clients.append(Client(*await asyncio.open_unix_connection(path)))
    assert (await egress.clients[-1].receive()).startswith(b"HTTP/1.1 429 ")


async def test_a_rejected_connection_leaves_with_the_session(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(egress, monkeypatch)
    (client,) = await rejected_connections(egress, 1)
    await egress.proxy.close("session")
    assert await client.receive_all() == b""
    assert egress.session.rejected_connections == set()


@pytest.mark.parametrize("held", [0, 1], ids=["let in", "rejected"])
async def test_whoever_is_dropped_before_anything_was_done_for_it_is_let_go(
    egress: EgressFixture, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await egress.restart(limits=ONE)
    for _ in range(held):
        await egress.client()
        await until(lambda: egress.session.full)
    accept = egress.proxy._accept  # noqa: SLF001 - the moment is its last one

    def accept_and_drop(session: ProxySession, arrived: streams.ByteStream) -> None:
        before = {*session.connections, *session.rejected_connections}
        accept(session, arrived)
        for each in {*session.connections, *session.rejected_connections} - before:
            each.drop()

    monkeypatch.setattr(egress.proxy, "_accept", accept_and_drop)
    client = await egress.client()
    assert await asyncio.wait_for(client.receive_all(), 20) == b""


async def test_whoever_was_let_in_after_the_session_ended_is_let_go(egress: EgressFixture) -> None:
    """The event loop may have accepted a connection before, and tell of it only now."""
    await egress.proxy.close("session")
    path = str(egress.folder / "late.sock")
    late = await asyncio.get_running_loop().create_unix_server(
        lambda: streams.listening_protocol(
            lambda arrived: egress.proxy._accept(egress.session, arrived)  # noqa: SLF001 - it is told
        ),
        path,
    )
    async with late:
        client = Client(*await asyncio.open_unix_connection(path))
        egress.clients.append(client)
        assert await asyncio.wait_for(client.receive_all(), 20) == b""
    assert egress.session.connections == set()


# A broker that does not answer


async def test_if_nobody_says_that_a_value_still_stands_it_does_not(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.05)
    client = await streaming(egress)
    egress.broker.unresponsive = True
    assert await asyncio.wait_for(client.receive_all(), 20) == b""


async def test_whoever_used_no_value_stays_while_nobody_answers(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.05)
    with_value = await streaming(egress)
    without = await egress.tunnel()
    egress.broker.unresponsive = True
    assert await asyncio.wait_for(with_value.receive_all(), 20) == b""
    egress.api.behave = say(STREAM, End.EOF)
    status, _, _ = await without.request(egress.head())
    assert status == 200


async def test_who_idles_leaves_though_nobody_answers(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", FOREVER)
    await egress.restart(limits=IDLE)
    client = await streaming(egress)
    egress.broker.unresponsive = True
    assert await asyncio.wait_for(client.receive_all(), 20) == b""


# Heads and handshakes that never end


async def test_a_head_that_does_not_end_in_a_tunnel_is_refused(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await egress.tunnel()
    monkeypatch.setattr(exchange, "HEAD_SECONDS", 0.05)
    status, headers, _ = await asyncio.wait_for(client.request(b"GET / HT"), 20)
    assert (status, headers["x-tollhouse-egress"]) == (408, "too_slow")
    assert egress.api.requests == 0


async def test_between_requests_nothing_hurries_a_client(
    egress: EgressFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "HEAD_SECONDS", 0.0)
    client = await egress.tunnel()
    for _ in range(2):
        await asyncio.sleep(0)
        status, _, _ = await client.request(egress.head())
        assert status == 200


@pytest.mark.parametrize("host", [API, OTHER], ids=["read", "unread"])
async def test_a_handshake_that_does_not_end_is_given_up(
    egress: EgressFixture, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "HEAD_SECONDS", 0.05)
    client = await egress.client()
    await client.connect(host, egress.port_of(host))
    await client.send(b"\x16\x03\x01")
    assert await asyncio.wait_for(client.receive_all(), 20) == b""
