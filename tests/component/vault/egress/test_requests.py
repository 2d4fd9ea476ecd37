"""What of a client's requests reaches the host: as it was, or written anew, or not at all."""

import pytest

from tests.component.vault.egress.egress_fixture import API, EgressFixture
from tests.support.providers.raw_server import RawServer

TOKEN = "Authorization: Bearer {{secret:token}}"


@pytest.mark.parametrize("spelling", ["API.example", "api.example.", "Api.Example."])
async def test_the_host_gets_its_name_in_one_spelling(egress: EgressFixture, spelling: str) -> None:
    port = egress.api.port
    client = await egress.tunnel()
    head = f"GET / HTTP/1.1\r\nAccept: a/b\r\nHost: {spelling}:{port}\r\n\r\n".encode()
    status, _, _ = await client.request(head)
    assert status == 200
    assert egress.api.peers[0].head.split(b"\r\n")[1:3] == [
        f"host: {API}:{port}".encode(),
        b"accept: a/b",
    ]


@pytest.mark.parametrize(
    "path", ["//elsewhere.example/x", "/a//b/../c/./d", "/%2e%2e/%41?q=%7e", "/?", "/a;b=c@d"]
)
async def test_a_path_goes_on_as_it_is(egress: EgressFixture, path: str) -> None:
    client = await egress.tunnel()
    await client.request(egress.head(TOKEN, request=f"GET {path} HTTP/1.1"))
    assert egress.api.peers[0].head.startswith(f"GET {path} HTTP/1.1\r\n".encode())


async def test_a_path_goes_on_as_it_is_without_tls(egress: EgressFixture) -> None:
    await egress.restart(plain_http=True)
    egress.name_server.addresses["plain.example"] = ["127.0.0.1"]
    async with RawServer() as server:
        place = f"plain.example:{server.port}"
        client = await egress.client()
        line = f"GET http://{place}//elsewhere.example/x HTTP/1.1\r\n"
        await client.request(f"{line}Host: {place}\r\n\r\n".encode())
        assert server.peers[0].head.startswith(b"GET //elsewhere.example/x HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("request_line", "field", "reason"),
    [
        ("trace / HTTP/1.1", "X: y", "method"),
        ("Connect / HTTP/1.1", "X: y", "method"),
        ("GET / HTTP/1.2", "X: y", "malformed"),
        ("GET / HTTP/2.0", "X: y", "malformed"),
        ("POST / HTTP/1.1", "Content-Length: 03", "ambiguous_length"),
        ("POST / HTTP/1.1", "Content_Length: 3", "ambiguous_length"),
        ("POST / HTTP/1.1", "Transfer_Encoding: chunked", "ambiguous_length"),
    ],
)
async def test_what_hosts_read_in_different_ways_is_refused(
    egress: EgressFixture, request_line: str, field: str, reason: str
) -> None:
    client = await egress.tunnel()
    await client.send(egress.head(TOKEN, field, request=request_line) + b"abc")
    _, headers, _ = await client.response("GET")
    assert headers["x-tollhouse-egress"] == reason
    assert egress.api.requests == 0


async def test_what_follows_a_refused_request_is_not_read(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    refused = egress.head(TOKEN, request="TRACE / HTTP/1.1")
    await client.send(refused + egress.head(TOKEN))
    heard = await client.receive_all()
    assert heard.count(b"HTTP/1.1 ") == 1
    assert egress.api.requests == 0
