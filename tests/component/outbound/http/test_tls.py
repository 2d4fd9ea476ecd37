"""Servers are verified; one that is not who it should be gets nothing of the request."""

import ssl
from datetime import UTC, datetime

import pytest
import trustme

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import Exchange, post
from tests.support.providers.raw_server import Peer, RawServer
from tollhouse.outbound.http.port import ConnectFailed, Upstream

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def is_refused(upstream: Upstream, context: ssl.SSLContext) -> None:
    async with RawServer(ssl_context=context) as server:
        with pytest.raises(ConnectFailed) as caught:
            await upstream.send(post(server.url))
        assert not caught.value.sent
        assert server.requests == 0


@pytest.mark.parametrize("wrong", ["authority", "name", "date"])
async def test_a_server_with_a_wrong_certificate_is_refused(
    upstream: Upstream, authority: trustme.CA, wrong: str
) -> None:
    signed_by = trustme.CA() if wrong == "authority" else authority
    name = "other.example" if wrong == "name" else "127.0.0.1"
    ends = LONG_AGO if wrong == "date" else None
    await is_refused(upstream, serving(signed_by.issue_cert(name, not_after=ends)))


async def test_without_a_context_of_its_own_the_client_trusts_only_the_systems_authorities(
    make_upstream: MakeUpstream, server_tls: ssl.SSLContext
) -> None:
    await is_refused(make_upstream(ssl_context=None), server_tls)


async def test_a_server_that_does_not_speak_tls_is_refused(upstream: Upstream) -> None:
    async def greet(peer: Peer) -> None:
        await peer.play(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with RawServer() as server:
        server.greet = greet
        with pytest.raises(ConnectFailed) as caught:
            await upstream.send(post(server.url.replace("http:", "https:")))
        assert not caught.value.sent


async def test_the_client_is_healthy_after_a_refused_server(
    upstream: Upstream, server_tls: ssl.SSLContext
) -> None:
    await is_refused(upstream, serving(trustme.CA().issue_cert("127.0.0.1")))
    async with RawServer(ssl_context=server_tls) as server:
        await Exchange(upstream, server).is_healthy()
