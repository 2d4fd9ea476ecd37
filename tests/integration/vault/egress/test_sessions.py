"""How many a session lets in, and how whoever is inside has to leave."""

import asyncio
import socket

import pytest

from tests.integration.vault.egress.house import API, OTHER, Client, House
from tests.waiting import until
from tollhouse.testing.raw_server import say
from tollhouse.testing.script import End
from tollhouse.vault.egress import connection, conversation, proxy, wire
from tollhouse.vault.egress.messages import Limits, Open
from tollhouse.vault.egress.session import Session

TOKEN = "Authorization: Bearer {{secret:token}}"
ONE = Limits(connections=1, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = Limits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
FOREVER = 600.0
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: one\n\n"


async def full(house: House, patch: pytest.MonkeyPatch) -> None:
    """Fill the house, where those who are turned away are not hurried."""
    patch.setattr(wire, "_GOODBYE_SECONDS", FOREVER)
    await house.again(limits=ONE)
    await house.client()
    await until(lambda: house.session.full)


async def turned_away(house: House, times: int) -> list[Client]:
    """Return clients that were told that there are too many, and stay nevertheless."""
    clients = [await house.client() for _ in range(times)]
    for client in clients:
        assert (await client.hear()).startswith(b"HTTP/1.1 429 ")
    return clients


async def streaming(house: House) -> Client:
    """Return a client in the middle of an answer, which has cost a value."""
    house.api.behave = say(STREAM, End.HANG)
    client = await house.tunnel()
    await client.say(house.head(TOKEN))
    heard = b""
    while b"data: one" not in heard:
        heard += await client.hear()
    return client


# Too many


async def test_no_more_than_so_many_are_told_at_once_that_there_are_too_many(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(house, monkeypatch)
    await turned_away(house, proxy.MOST_TURNED_AWAY)
    assert await (await house.client()).hear_all() == b""


async def test_who_leaves_makes_room_for_another_one_to_be_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(house, monkeypatch)
    clients = await turned_away(house, proxy.MOST_TURNED_AWAY)
    clients[0].leave()
    await until(lambda: len(house.session.turned_away) < proxy.MOST_TURNED_AWAY)
    await turned_away(house, 1)


async def test_one_session_does_not_use_up_what_another_one_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(house, monkeypatch)
    await turned_away(house, proxy.MOST_TURNED_AWAY)
    path = str(house.folder / "second.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()
        await house.proxy.open(Open("second", None, None, plain_http=False), listener.dup())
    second = house.proxy._sessions["second"]  # noqa: SLF001 - nothing tells that it is full
    house.clients.append(Client(*await asyncio.open_unix_connection(path)))
    await until(lambda: second.full)
    house.clients.append(Client(*await asyncio.open_unix_connection(path)))
    assert (await house.clients[-1].hear()).startswith(b"HTTP/1.1 429 ")


async def test_whoever_is_turned_away_leaves_with_the_session(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await full(house, monkeypatch)
    (client,) = await turned_away(house, 1)
    await house.proxy.close("session")
    assert await client.hear_all() == b""
    assert house.session.turned_away == set()


@pytest.mark.parametrize("held", [0, 1], ids=["let in", "turned away"])
async def test_whoever_is_dropped_before_anything_was_done_for_it_is_let_go(
    house: House, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.again(limits=ONE)
    for _ in range(held):
        await house.client()
        await until(lambda: house.session.full)
    accept = house.proxy._accept  # noqa: SLF001 - the moment is its last one

    def accept_and_drop(session: Session, arrived: wire.Wire) -> None:
        before = {*session.connections, *session.turned_away}
        accept(session, arrived)
        for each in {*session.connections, *session.turned_away} - before:
            each.drop()

    monkeypatch.setattr(house.proxy, "_accept", accept_and_drop)
    client = await house.client()
    assert await asyncio.wait_for(client.hear_all(), 20) == b""


async def test_whoever_was_let_in_after_the_session_ended_is_let_go(house: House) -> None:
    """The event loop may have accepted a connection before, and tell of it only now."""
    await house.proxy.close("session")
    path = str(house.folder / "late.sock")
    late = await asyncio.get_running_loop().create_unix_server(
        lambda: wire.listening_protocol(
            lambda arrived: house.proxy._accept(house.session, arrived)  # noqa: SLF001 - it is told
        ),
        path,
    )
    async with late:
        client = Client(*await asyncio.open_unix_connection(path))
        house.clients.append(client)
        assert await asyncio.wait_for(client.hear_all(), 20) == b""
    assert house.session.connections == set()


# A keeper that says nothing


async def test_if_nobody_says_that_a_value_still_stands_it_does_not(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.05)
    client = await streaming(house)
    house.keeper.silent = True
    assert await asyncio.wait_for(client.hear_all(), 20) == b""


async def test_whoever_used_no_value_stays_while_nobody_answers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.05)
    with_value = await streaming(house)
    without = await house.tunnel()
    house.keeper.silent = True
    assert await asyncio.wait_for(with_value.hear_all(), 20) == b""
    house.api.behave = say(STREAM, End.EOF)
    status, _, _ = await without.ask(house.head())
    assert status == 200


async def test_who_idles_leaves_though_nobody_answers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", FOREVER)
    await house.again(limits=IDLE)
    client = await streaming(house)
    house.keeper.silent = True
    assert await asyncio.wait_for(client.hear_all(), 20) == b""


# Heads and handshakes that never end


async def test_a_head_that_does_not_end_in_a_tunnel_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await house.tunnel()
    monkeypatch.setattr(conversation, "HEAD_SECONDS", 0.05)
    status, headers, _ = await asyncio.wait_for(client.ask(b"GET / HT"), 20)
    assert (status, headers["x-tollhouse-egress"]) == (408, "too_slow")
    assert house.api.requests == 0


async def test_between_requests_nothing_hurries_a_client(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "HEAD_SECONDS", 0.0)
    client = await house.tunnel()
    for _ in range(2):
        await asyncio.sleep(0)
        status, _, _ = await client.ask(house.head())
        assert status == 200


@pytest.mark.parametrize("host", [API, OTHER], ids=["read", "unread"])
async def test_a_handshake_that_does_not_end_is_given_up(
    house: House, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.05)
    client = await house.client()
    await client.connect(host, house.port_of(host))
    await client.say(b"\x16\x03\x01")
    assert await asyncio.wait_for(client.hear_all(), 20) == b""
