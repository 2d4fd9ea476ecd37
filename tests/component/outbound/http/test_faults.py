"""Each way in which an upstream breaks off or lies: its error, and health afterwards."""

import socket

import pytest

from tests.component.outbound.http.exchange import (
    READ_LIMIT,
    SHORT,
    Exchange,
    on_both_routes,
    plain_only,
    post,
    read,
)
from tests.support.providers.byte_script import End, Pause
from tests.support.providers.raw_server import Peer, RawServer, refusing_port, reply, say
from tests.support.upstream_faults import CHUNKED, FAULTS, Fault
from tollhouse.outbound.http.port import (
    ConnectFailed,
    ConnectionLost,
    ProtocolViolation,
    ResponseTooLarge,
    Upstream,
    UpstreamError,
)

LONG_NAME = f"http://{'x' * 64}.invalid/"

# ----------------------------------------------------------------- after the request has arrived


@on_both_routes
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_has_its_error_and_the_client_is_healthy_afterwards(
    exchange: Exchange, fault: Fault
) -> None:
    exchange.server.behave = fault.behave
    error = await exchange.fails(fault.error)
    assert error.sent


@plain_only
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_on_a_reused_connection_is_met_once(exchange: Exchange, fault: Fault) -> None:
    await exchange.is_healthy()
    before = exchange.server.requests
    exchange.server.behave = fault.behave
    with pytest.raises(fault.error):
        await exchange.read()
    assert exchange.server.requests == before + 1


@plain_only
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_in_a_stream_has_the_same_error(exchange: Exchange, fault: Fault) -> None:
    exchange.server.behave = fault.behave
    with pytest.raises(UpstreamError) as caught:
        await exchange.stream()
    assert type(caught.value) is fault.error


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_a_method_that_may_be_repeated_is_not_repeated(
    exchange: Exchange, method: str
) -> None:
    await exchange.is_healthy()
    before = exchange.server.requests
    exchange.server.behave = say(End.EOF)
    with pytest.raises(ConnectionLost):
        await read(exchange.upstream, exchange.post(b"", method))
    assert exchange.server.requests == before + 1


async def test_an_error_body_is_read(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b'{"error":{}}', "500 Internal Server Error"))
    response = await exchange.open()
    assert (response.status, await response.read(READ_LIMIT)) == (500, b'{"error":{}}')


@pytest.mark.parametrize("ending", [End.HANG, End.EOF])
async def test_an_early_413_to_a_large_upload_is_read(exchange: Exchange, ending: End) -> None:
    async def refuse(peer: Peer) -> None:
        peer.transport.pause_reading()
        await peer.play(reply(b"too large", "413 Content Too Large"), Pause(SHORT))
        peer.transport.resume_reading()
        await peer.play(ending)

    exchange.server.behave = refuse
    response = await exchange.open(b"x" * 50_000_000)
    assert (response.status, await response.read(READ_LIMIT)) == (413, b"too large")
    await response.close()
    await exchange.is_healthy()


# ------------------------------------------------------------------------ the reader's own limit


async def test_a_body_over_the_readers_limit_is_refused(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b"x" * 1001))
    with pytest.raises(ResponseTooLarge) as caught:
        await read(exchange.upstream, exchange.post(), limit=1000)
    assert caught.value.sent
    assert await read(exchange.upstream, exchange.post(), limit=1001) == b"x" * 1001
    await exchange.is_healthy()


async def test_an_endless_body_is_cut_at_the_readers_limit(exchange: Exchange) -> None:
    chunk = b"10000\r\n%b\r\n" % (b"x" * 0x10000)
    exchange.server.behave = say(CHUNKED, chunk * 100, End.HANG)
    with pytest.raises(ResponseTooLarge):
        await exchange.read()
    await exchange.is_healthy()


# ------------------------------------------------------------------ before anything could be sent


async def test_a_refused_connection_has_sent_nothing(upstream: Upstream) -> None:
    with refusing_port() as port, pytest.raises(ConnectFailed) as caught:
        await upstream.send(post(f"http://127.0.0.1:{port}/"))
    assert not caught.value.sent


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "http://", "/v1/models", "http://[x/", LONG_NAME]
)
async def test_what_is_no_http_url_has_sent_nothing(upstream: Upstream, url: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        await upstream.send(post(url))
    assert not caught.value.sent


async def test_a_name_that_does_not_exist_has_sent_nothing(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(ConnectFailed) as caught:
        await upstream.send(post("http://upstream.invalid/"))
    assert not caught.value.sent


async def test_the_second_address_of_a_name_is_tried(
    upstream: Upstream, server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_port() as other:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        found = [(*kind, ("127.0.0.1", port)) for port in (other, server.port)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        url = server.url.replace("127.0.0.1", "localhost")
        assert await read(upstream, post(url, b"found")) == b"found"


async def test_a_greeting_before_the_request_is_refused(exchange: Exchange) -> None:
    async def greet(peer: Peer) -> None:
        if peer is exchange.server.peers[0]:
            await peer.play(b"SSH-2.0-OpenSSH_9.2\r\n")

    exchange.server.greet = greet
    with pytest.raises((ProtocolViolation, ConnectionLost, ConnectFailed)):
        await exchange.read()
    await exchange.is_healthy()
