"""Through a proxy: the same exchanges, and its own failures are failures to connect.

The faults of an upstream behind a proxy are in `test_faults`.
"""

import pytest

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import SHORT, Exchange, plain_only, post, read
from tests.component.outbound.http.forward_proxy import ForwardProxy
from tests.support.providers.byte_script import End, Step
from tests.support.providers.raw_server import RawServer, refusing_port, reply, say
from tollhouse.outbound.http.client import HttpUpstream, read_proxy
from tollhouse.outbound.http.port import ConnectFailed, ConnectTimeout

tls_only = pytest.mark.parametrize("transport", ["tls"])


@tls_only
async def test_https_goes_through_a_tunnel_that_is_used_again(
    make_upstream: MakeUpstream, server: RawServer, proxy: ForwardProxy
) -> None:
    upstream = make_upstream(proxy=f"http://127.0.0.1:{proxy.port}")
    await Exchange(upstream, server).is_healthy()
    assert [head.splitlines()[0] for head in proxy.heads] == [
        f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"
    ]


@tls_only
async def test_the_proxy_gets_its_password_alone_and_the_upstream_does_not(
    make_upstream: MakeUpstream, server: RawServer, proxy: ForwardProxy
) -> None:
    exchange = Exchange(make_upstream(proxy=f"http://me:secret@127.0.0.1:{proxy.port}"), server)
    await exchange.is_healthy(1)
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in proxy.heads[0]
    assert "application/json" not in proxy.heads[0]
    assert "authorization" not in str(exchange.peer.fields)


@plain_only
async def test_http_goes_to_the_proxy_with_the_whole_url(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    upstream = make_upstream(proxy=server.url.rstrip("/"))
    assert await read(upstream, post("http://upstream.invalid/v1/models", b"through")) == b"through"
    assert server.peers[0].head.startswith(b"POST http://upstream.invalid/v1/models HTTP/1.1\r\n")
    assert server.peers[0].fields["host"] == "upstream.invalid"


@tls_only
@pytest.mark.parametrize(
    "script",
    [
        [reply(b"", "403 Forbidden")],
        [reply(b"", "407 Proxy Authentication Required")],
        [End.EOF],
        [End.RST],
        [b"HTTP/1.1 200 OK\r\n\r\nspoken before TLS", End.HANG],
        [b"HTTP/2 200\r\n\r\n", End.HANG],
        [b"220 mail.example ESMTP\r\n\r\n", End.HANG],
        [b"HTTP/1.1 200 OK\r\nX-Padding: " + b"x" * 70_000, End.HANG],
    ],
)
async def test_a_proxy_that_refuses_breaks_off_or_answers_nonsense_has_sent_nothing(
    make_upstream: MakeUpstream, server: RawServer, script: list[Step]
) -> None:
    async with RawServer() as proxy:
        proxy.behave = say(*script)
        exchange = Exchange(make_upstream(proxy=proxy.url.rstrip("/")), server)
        with pytest.raises(ConnectFailed) as caught:
            await exchange.read()
        assert not caught.value.sent
        await proxy.peers[0].wait_closed()


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


@plain_only
async def test_the_proxy_gets_its_password_with_each_request_for_http(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    proxy = server.url.rstrip("/").replace("://", "://m%65:p%40ss@")
    exchange = Exchange(make_upstream(proxy=proxy), server)
    await exchange.is_healthy(2)
    assert exchange.peer.fields["proxy-authorization"] == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize("url", ["https://p:1", "socks5://p:1", "http://", "http://p/path", "p:1"])
def test_what_is_no_http_proxy_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://user:password@host:port"):
        HttpUpstream(proxy=url)


@tls_only
async def test_the_password_of_a_proxy_is_in_no_repr(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    async with RawServer() as proxy:
        proxy.behave = say(reply(b"", "407 Proxy Authentication Required"))
        secret = proxy.url.rstrip("/").replace("://", "://me:secret@")
        with pytest.raises(ConnectFailed) as caught:
            await Exchange(make_upstream(proxy=secret), server).read()
    assert "secret" not in repr(caught.value)
    assert "bWU6c2VjcmV0" not in repr(read_proxy(secret))
