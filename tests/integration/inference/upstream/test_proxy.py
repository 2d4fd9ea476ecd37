"""Through a CONNECT proxy: the same exchanges, and its own failures are failures to connect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.integration.inference.upstream.conftest import MakeUpstream
from tests.integration.inference.upstream.exchange import SHORT, Exchange, plain_only, read
from tollhouse.inference.upstream.aiohttp_adapter import AiohttpUpstream
from tollhouse.inference.upstream.errors import ConnectFailed, ConnectTimeout
from tollhouse.testing.byte_script import End
from tollhouse.testing.raw_server import RawServer, refusing_port, reply, say

pytestmark = pytest.mark.parametrize("adapter", [AiohttpUpstream])
tls_only = pytest.mark.parametrize("transport", ["tls"])


class ConnectProxy:
    """Tunnels whatever it is asked for."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.port = 0

    async def tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        host, _, port = head.split(" ")[1].rpartition(":")
        inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    writer.close()


@pytest.fixture
async def proxy() -> AsyncIterator[ConnectProxy]:
    proxy = ConnectProxy()
    async with await asyncio.start_server(proxy.tunnel, "127.0.0.1", 0) as server:
        proxy.port = server.sockets[0].getsockname()[1]
        yield proxy


@tls_only
async def test_https_goes_through_a_tunnel_that_is_used_again(
    make_upstream: MakeUpstream, server: RawServer, proxy: ConnectProxy
) -> None:
    upstream = make_upstream(proxy=f"http://127.0.0.1:{proxy.port}")
    await Exchange(upstream, server).is_healthy()
    assert [head.splitlines()[0] for head in proxy.heads] == [
        f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
    ]


@tls_only
async def test_the_proxy_gets_its_password_and_the_upstream_does_not(
    make_upstream: MakeUpstream, server: RawServer, proxy: ConnectProxy
) -> None:
    exchange = Exchange(make_upstream(proxy=f"http://me:secret@127.0.0.1:{proxy.port}"), server)
    await exchange.is_healthy(1)
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in proxy.heads[0]
    assert "authorization" not in str(exchange.peer.fields)


@tls_only
async def test_the_proxy_does_not_get_the_headers_of_the_request(
    make_upstream: MakeUpstream, server: RawServer, proxy: ConnectProxy
) -> None:
    exchange = Exchange(make_upstream(proxy=f"http://127.0.0.1:{proxy.port}"), server)
    await exchange.is_healthy(1)
    assert "application/json" not in proxy.heads[0]


@plain_only
async def test_http_goes_to_the_proxy_with_the_whole_url(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    upstream = make_upstream(proxy=server.url.rstrip("/"))
    request = Exchange(upstream, server).post(b"through")
    object.__setattr__(request, "url", "http://upstream.invalid/v1/models")
    assert await read(upstream, request) == b"through"
    assert server.peers[0].head.startswith(b"POST http://upstream.invalid/v1/models HTTP/1.1\r\n")
    assert server.peers[0].fields["host"] == "upstream.invalid"


@tls_only
@pytest.mark.parametrize("status", ["403 Forbidden", "407 Proxy Authentication Required"])
async def test_a_proxy_that_refuses_has_sent_nothing(
    make_upstream: MakeUpstream, server: RawServer, status: str
) -> None:
    async with RawServer() as proxy:
        proxy.behave = say(reply(b"", status))
        exchange = Exchange(make_upstream(proxy=proxy.url.rstrip("/")), server)
        with pytest.raises(ConnectFailed) as caught:
            await exchange.read()
        assert not caught.value.sent


@tls_only
@pytest.mark.parametrize("ending", [End.EOF, End.RST])
async def test_a_proxy_that_breaks_off_has_sent_nothing(
    make_upstream: MakeUpstream, server: RawServer, ending: End
) -> None:
    async with RawServer() as proxy:
        proxy.behave = say(ending)
        exchange = Exchange(make_upstream(proxy=proxy.url.rstrip("/")), server)
        with pytest.raises(ConnectFailed) as caught:
            await exchange.read()
        assert not caught.value.sent


@tls_only
async def test_a_proxy_that_does_not_answer_is_a_connect_timeout(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    async with RawServer() as proxy:
        proxy.behave = say(End.HANG)
        exchange = Exchange(make_upstream(proxy=proxy.url.rstrip("/")), server)
        with pytest.raises(ConnectTimeout) as caught:
            await exchange.read(connect=SHORT)
        assert not caught.value.sent
        await proxy.peers[0].wait_closed()


@tls_only
async def test_a_proxy_that_is_not_there_has_sent_nothing(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    with refusing_port() as port:
        exchange = Exchange(make_upstream(proxy=f"http://127.0.0.1:{port}"), server)
        with pytest.raises(ConnectFailed) as caught:
            await exchange.read()
        assert not caught.value.sent
