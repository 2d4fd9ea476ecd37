"""What goes over the wire is what the caller said, framed by the transport, and nothing else."""

import asyncio
import gzip

import pytest

from tests.component.outbound.http.exchange import (
    READ_LIMIT,
    Exchange,
    collect,
    plain_only,
    post,
    read,
)
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import Peer, RawServer, echo, refusing_port, reply, say
from tests.support.tables import tables
from tests.support.upstream_faults import CHUNKED, OPEN_ENDED
from tests.support.waiting import take_turns
from tollhouse.outbound.http.port import ConnectFailed, ProtocolViolation, UpstreamRequest

CASES = tables(__file__)

# -------------------------------------------------------------------------------------- requests


def request(exchange: Exchange, *fields: tuple[str, str], method: str = "POST") -> UpstreamRequest:
    return UpstreamRequest(method, exchange.server.url + "v1/%2e./x?y=%2F&z", fields, b"body")


async def test_a_request_is_what_the_caller_said_with_host_and_length(exchange: Exchange) -> None:
    await read(exchange.upstream, request(exchange, ("X-One", "1"), ("x-two", "2"), ("X-One", "3")))
    host = exchange.server.url.split("/")[2]
    first, *fields = exchange.peer.head.decode().rstrip().split("\r\n")
    assert first == "POST /v1/%2e./x?y=%2F&z HTTP/1.1"
    own = {f"Host: {host}", "Content-Length: 4"}
    assert [field for field in fields if field not in own] == ["X-One: 1", "x-two: 2", "X-One: 3"]
    assert len(fields) == 5


@plain_only
@pytest.mark.parametrize(("name", "value"), CASES["a_field_that_is_the_transports_own_is_left_out"])
async def test_a_field_that_is_the_transports_own_is_left_out(
    exchange: Exchange, name: str, value: str
) -> None:
    assert await read(exchange.upstream, request(exchange, (name, value))) == b"body"
    assert exchange.peer.fields.get(name.lower()) != value


@plain_only
@pytest.mark.parametrize(
    ("name", "value"), CASES["a_field_that_would_break_the_head_is_refused_before_anything_is_sent"]
)
async def test_a_field_that_would_break_the_head_is_refused_before_anything_is_sent(
    exchange: Exchange, name: str, value: str
) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        await exchange.upstream.send(request(exchange, (name, value)))
    assert not caught.value.sent
    assert not exchange.server.peers
    assert "sk-1" not in str(caught.value)


@plain_only
async def test_a_method_that_is_no_word_is_refused_before_anything_is_sent(
    exchange: Exchange,
) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        await exchange.upstream.send(request(exchange, method="NO WORD"))
    assert not caught.value.sent


@plain_only
@pytest.mark.parametrize("path", ["a\r\nEvil: 1", "a b", "a\x00b", "caf\u00e9"])
async def test_a_url_that_would_break_the_request_line_is_refused_before_anything_is_sent(
    exchange: Exchange, path: str
) -> None:
    with pytest.raises(ConnectFailed) as caught:
        await exchange.upstream.send(post(exchange.server.url + path))
    assert not caught.value.sent
    assert not exchange.server.peers


@pytest.mark.parametrize(("method", "length"), [("GET", None), ("POST", "0")])
async def test_a_post_without_a_body_has_length_zero_and_a_get_none(
    exchange: Exchange, method: str, length: str | None
) -> None:
    await read(exchange.upstream, exchange.post(b"", method))
    assert exchange.peer.fields.get("content-length") == length


async def test_a_large_body_arrives_whole(exchange: Exchange) -> None:
    body = bytes(range(256)) * 20_000
    assert await read(exchange.upstream, exchange.post(body), limit=len(body)) == body
    await exchange.is_healthy()


@plain_only
async def test_proxies_of_the_environment_are_ignored(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refusing_port() as port:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        await exchange.is_healthy()


# ------------------------------------------------------------------------------------- responses


async def test_header_names_are_lower_case_and_the_last_of_repeated_ones_wins(
    exchange: Exchange,
) -> None:
    exchange.server.behave = say(reply(b"", fields=b"X-Id: one\r\nx-ID:  two \r\n"))
    response = await exchange.open()
    assert dict(response.headers) == {"content-length": "0", "x-id": "two"}


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints"])
async def test_interim_responses_are_skipped(exchange: Exchange, status: bytes) -> None:
    interim = b"HTTP/1.1 %b\r\nLink: </a>\r\n\r\n" % status
    exchange.server.behave = say(interim, interim, reply(b"final"))
    assert await exchange.read() == b"final"
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("POST", b"HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n"),
        ("POST", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
    ],
)
async def test_some_responses_have_no_body(exchange: Exchange, method: str, head: bytes) -> None:
    exchange.server.behave = say(head)
    assert await read(exchange.upstream, exchange.post(b"", method)) == b""
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


async def test_trailers_and_chunk_extensions_are_read_and_dropped(exchange: Exchange) -> None:
    exchange.server.behave = say(CHUNKED, b"3;a=b\r\none\r\n0\r\nX-Sum: 1\r\n\r\n")
    response = await exchange.open()
    assert await response.read(READ_LIMIT) == b"one"
    assert "x-sum" not in response.headers
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


async def test_a_chunk_split_anywhere_is_put_together(exchange: Exchange) -> None:
    data = CHUNKED + b"3\r\none\r\n4\r\n two\r\n0\r\n\r\n"

    async def split(peer: Peer) -> None:
        await peer.body()
        for at in range(len(data)):
            peer.transport.write(data[at : at + 1])
            await asyncio.sleep(0)

    exchange.server.behave = split
    assert await exchange.stream() == b"one two"


async def test_redirects_are_not_followed(exchange: Exchange) -> None:
    fields = b"Location: /elsewhere\r\n"
    exchange.server.behave = say(reply(b"moved", "307 Temporary Redirect", fields))
    response = await exchange.open()
    assert (response.status, response.headers["location"]) == (307, "/elsewhere")
    assert await response.read(READ_LIMIT) == b"moved"
    assert exchange.server.requests == 1


async def test_bodies_are_not_decompressed(exchange: Exchange) -> None:
    packed = gzip.compress(b"x" * 1000)
    exchange.server.behave = say(reply(packed, fields=b"Content-Encoding: gzip\r\n"))
    assert await exchange.read() == packed


async def test_cookies_are_not_kept(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b"", fields=b"Set-Cookie: a=b\r\n"))
    await exchange.read()
    await exchange.is_healthy(1)
    assert "cookie" not in exchange.peer.fields


async def test_an_open_ended_body_ends_with_the_connection(exchange: Exchange) -> None:
    exchange.server.behave = say(OPEN_ENDED, b"all of it", End.EOF)
    assert await exchange.read() == b"all of it"
    await exchange.is_healthy()


async def test_each_piece_of_a_stream_comes_at_once(exchange: Exchange) -> None:
    """The upstream waits for the reader's word before it sends the next piece."""
    heard = asyncio.Event()

    async def wait(peer: Peer) -> None:
        await peer.body()
        peer.transport.write(CHUNKED)
        for number in range(5):
            peer.transport.write(b"1\r\n%d\r\n" % number)
            await heard.wait()
            heard.clear()
        peer.transport.write(b"0\r\n\r\n")

    exchange.server.behave = wait
    response = await exchange.open()
    got: list[bytes] = []
    async for piece in response.chunks():
        got.append(piece)
        heard.set()
    assert got == [b"0", b"1", b"2", b"3", b"4"]


@plain_only
async def test_a_body_that_nobody_reads_stays_with_the_upstream(
    exchange: Exchange, server: RawServer
) -> None:
    size = 40_000_000
    server.behave = say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, bytes(size))
    response = await exchange.open()
    await take_turns(2_000)
    assert exchange.peer.transport.get_write_buffer_size() > size // 2
    await response.close()
    await exchange.is_healthy()


async def test_a_slow_reader_gets_the_whole_body(exchange: Exchange) -> None:
    size = 2_000_000
    exchange.server.behave = say(reply(bytes(size)))
    response = await exchange.open()
    await take_turns()
    got: list[bytes] = []
    await collect(response, got)
    assert sum(map(len, got)) == size
    exchange.server.behave = echo
    await exchange.is_healthy()
