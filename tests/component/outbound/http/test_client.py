"""What the client promises beyond its port."""

import asyncio
import os
import socket
from collections.abc import Sequence

import pytest

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import (
    Exchange,
    at_once,
    collect,
    plain_only,
    post,
    read,
)
from tests.support.providers.byte_script import End, Pause
from tests.support.providers.raw_server import Peer, RawServer, echo, reply, say, unresponsive_port
from tests.support.upstream_faults import CHUNKED, OPEN_ENDED
from tests.support.waiting import take_turns
from tollhouse.outbound.dialing import AddressInfo, SystemResolver, open_socket
from tollhouse.outbound.http.port import ConnectFailed, ConnectionLost

tls_only = pytest.mark.parametrize("transport", ["tls"])

# --------------------------------------------------------------------- how a body ended


@tls_only
async def test_an_open_ended_body_over_tls_that_was_cut_is_an_error(exchange: Exchange) -> None:
    """RFC 8446, section 6.1: without close_notify the end may be an attacker's."""
    exchange.server.behave = say(OPEN_ENDED, b"half", Pause(0.01), End.CUT)
    await exchange.fails(ConnectionLost)


@tls_only
async def test_an_open_ended_body_over_tls_ends_with_close_notify(exchange: Exchange) -> None:
    exchange.server.behave = say(OPEN_ENDED, b"all of it", Pause(0.01), End.EOF)
    assert await exchange.read() == b"all of it"


async def test_pieces_that_nobody_read_are_delivered_before_the_reset(exchange: Exchange) -> None:
    exchange.server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(0.05), End.RST)
    response = await exchange.open()
    await exchange.peer.wait_closed()
    await take_turns()
    got: list[bytes] = []
    with pytest.raises(ConnectionLost):
        await collect(response, got)
    assert got == [b"one"]


@pytest.mark.parametrize("unasked", [reply(b"evil"), b"\x00 garbage", b"x"])
async def test_what_comes_in_the_packet_of_a_reply_costs_the_connection_and_not_the_reply(
    exchange: Exchange, unasked: bytes
) -> None:
    exchange.server.behave = say(reply(b"one") + unasked, End.HANG)
    assert await exchange.read() == b"one"
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 2


@plain_only
async def test_an_early_refusal_is_read_though_the_upload_met_a_reset(exchange: Exchange) -> None:
    async def refuse(peer: Peer) -> None:
        peer.transport.pause_reading()
        await peer.play(reply(b"too large", "413 Content Too Large"), Pause(0.01), End.RST)

    for _ in range(20):
        exchange.server.behave = refuse
        response = await exchange.open(b"x" * 5_000_000)
        assert (response.status, await response.read(100)) == (413, b"too large")
    await exchange.is_healthy()


# ----------------------------------------------------------------------------- cancelling


# --------------------------------------------------------------------- whom it connects to


class Names:
    """A resolver that says what it is told."""

    def __init__(self, *addresses: tuple[str, int]) -> None:
        self.addresses = addresses
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> Sequence[AddressInfo]:
        self.asked.append((host, port))
        return [(2, 1, 6, "", address) for address in self.addresses]


@plain_only
async def test_only_what_the_resolver_returns_is_dialled(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    names = Names(("127.0.0.1", server.port))
    upstream = make_upstream(resolve=names)
    assert await read(upstream, post("http://pinned.example:81/", b"found")) == b"found"
    assert names.asked == [("pinned.example", 81)]
    assert server.peers[0].fields["host"] == "pinned.example:81"


@plain_only
async def test_the_resolver_is_asked_about_numeric_addresses_too(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    names = Names(("127.0.0.1", server.port))
    await read(make_upstream(resolve=names), post("http://169.254.169.254/"))
    assert names.asked == [("169.254.169.254", 80)]


@plain_only
async def test_an_address_that_does_not_answer_does_not_hold_up_the_next(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    """RFC 8305: the next is tried while the first still hangs; there are 30 seconds for each."""
    with unresponsive_port() as other:
        names = Names(("127.0.0.1", other), ("127.0.0.1", server.port))
        upstream = make_upstream(resolve=names)
        async with at_once():
            assert await read(upstream, post("http://two.example/", b"x")) == b"x"


@plain_only
async def test_a_resolver_that_refuses_has_sent_nothing(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    async def refuse(host: str, port: int) -> Sequence[AddressInfo]:
        raise OSError(f"{host}:{port} is not allowed")

    with pytest.raises(ConnectFailed) as caught:
        await make_upstream(resolve=refuse).send(post(server.url))
    assert not caught.value.sent
    assert not server.peers


@tls_only
async def test_the_certificate_is_checked_against_the_name_and_not_the_address(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    upstream = make_upstream(resolve=Names(("127.0.0.1", server.port)))
    assert await read(upstream, post("https://localhost/", b"it")) == b"it"
    with pytest.raises(ConnectFailed):
        await upstream.send(post("https://other.example/"))


async def test_requests_for_one_name_share_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    answer = asyncio.Event()

    async def look_up(host: str, port: int) -> list[AddressInfo]:
        asked.append(host)
        await answer.wait()
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr("tollhouse.outbound.dialing._look_up", look_up)
    resolver = SystemResolver()
    waiting = [asyncio.create_task(resolver("name.example", 80)) for _ in range(10)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    answer.set()
    found = await asyncio.gather(*waiting[1:])
    assert asked == ["name.example"]
    assert found == [[(2, 1, 6, "", ("127.0.0.1", 80))]] * 9


# ---------------------------------------------------------------- a connection that rested


@plain_only
async def test_a_connection_that_closed_unseen_by_the_loop_is_not_used_again(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rest it asks the socket: a request into a closed connection would be ambiguous."""
    monkeypatch.setattr("tollhouse.outbound.http.connection._LOOK_AFTER_SECONDS", 0.0)
    await exchange.is_healthy(1)
    descriptor = exchange.peer.transport.get_extra_info("socket").fileno()
    with socket.socket(fileno=os.dup(descriptor)) as theirs:
        theirs.shutdown(socket.SHUT_RDWR)  # and the loop has no turn before the next request
    assert await exchange.read(b"next") == b"next"
    assert len(exchange.server.peers) == 2


async def test_reading_ends_nothing_that_came_whole(exchange: Exchange) -> None:
    """A body that has come is the reader's, whoever uses the connection now."""
    exchange.server.behave = echo
    first = await exchange.open(b"first")
    await take_turns()
    assert await exchange.read(b"second") == b"second"
    assert len(exchange.server.peers) == 1
    assert await first.read(100) == b"first"
    await first.close()
    assert await exchange.read(b"third") == b"third"
    assert len(exchange.server.peers) == 1


def test_a_socket_sends_at_once_and_probes_a_silent_peer() -> None:
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ())
    with open_socket(kind) as sock:
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
