"""What of a client's requests reaches the host, with which values, and what comes back."""

import asyncio
import base64
import threading

import pytest
import structlog
from structlog.testing import capture_logs

from tests.component.vault.egress.attacks.answers import SWITCH, UPGRADE
from tests.component.vault.egress.egress_fixture import (
    API,
    GATEWAY_KEY,
    VALUE,
    Client,
    ConnectRefusedError,
    EgressFixture,
)
from tests.support.providers.byte_script import Pause
from tests.support.providers.raw_server import Peer, RawServer, interrupt, reply, say
from tests.support.waiting import until
from tollhouse.kernel.redaction import forms_of

WITH_TOKEN = "Authorization: Bearer {{secret:token}}"


async def test_a_placeholder_in_a_body_is_text(egress: EgressFixture, client: Client) -> None:
    body = b'{"a": "{{secret:token}}"}'
    head = egress.head(WITH_TOKEN, f"Content-Length: {len(body)}", request="POST /items HTTP/1.1")
    status, _, echoed = await client.request(head + body, "POST")
    assert (status, echoed) == (200, body)
    assert egress.api.peers[0].arrived.endswith(b"\r\n\r\n" + body)


async def test_requests_follow_each_other_on_one_connection(
    egress: EgressFixture, client: Client
) -> None:
    for _ in range(3):
        status, _, _ = await client.request(egress.head(WITH_TOKEN))
        assert status == 200
    assert len(egress.api.peers) == 1
    assert egress.api.peers[0].requests == 3
    assert f"authorization: Bearer {VALUE}\r\n".encode() in egress.api.peers[0].arrived
    assert egress.broker.released == [("token", API)] * 3


async def test_a_request_without_a_placeholder_asks_for_nothing(
    egress: EgressFixture, client: Client
) -> None:
    status, _, _ = await client.request(egress.head("Accept-Encoding: gzip", "Range: bytes=0-3"))
    assert status == 200
    assert egress.broker.released == []
    assert b"accept-encoding: gzip\r\nrange: bytes=0-3\r\n" in egress.api.peers[0].arrived


async def test_a_body_without_a_length_goes_on_in_chunks(
    egress: EgressFixture, client: Client
) -> None:
    head = egress.head("Transfer-Encoding: chunked", request="POST / HTTP/1.1")
    egress.api.behave = interrupt(reply(b"early"))
    await client.send(head + b"5\r\nhello\r\n")
    assert (await client.response("POST"))[2] == b"early"
    assert b"transfer-encoding: chunked\r\n" in egress.api.peers[0].arrived


async def test_a_body_is_asked_for_where_the_client_waits_for_that(
    egress: EgressFixture, client: Client
) -> None:
    await client.send(
        egress.head("Content-Length: 5", "Expect: 100-continue", request="PUT / HTTP/1.1")
    )
    assert (await client.receive()).startswith(b"HTTP/1.1 100 ")
    status, _, body = await client.request(b"hello", "PUT")
    assert (status, body) == (200, b"hello")
    assert b"expect" not in egress.api.peers[0].arrived


FORMS = {
    "raw": VALUE,
    "json": VALUE.replace("/", "\\/"),
    "url": VALUE.replace("+", "%2B").replace("/", "%2F").replace("=", "%3D"),
    "url_lower": VALUE.replace("+", "%2b").replace("/", "%2f").replace("=", "%3d"),
    "hex": VALUE.encode().hex(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pieces", ["whole", "bytes"])
async def test_a_value_that_is_echoed_is_masked(
    egress: EgressFixture, client: Client, form: str, pieces: str
) -> None:
    shown = FORMS[form].encode()
    body = b"<" + shown + b">"
    if pieces == "whole":
        egress.api.behave = say(reply(body))
    else:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        parts = [part for byte in body for part in (b"1\r\n%c\r\n" % byte, Pause(0))]
        egress.api.behave = say(head, *parts, b"0\r\n\r\n")
    _, _, answer = await client.request(egress.head(WITH_TOKEN))
    assert answer == b"<" + b"*" * len(shown) + b">"


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_value_that_is_echoed_in_base64_is_masked(
    egress: EgressFixture, client: Client, before: int
) -> None:
    echoed = base64.b64encode(b"x" * before + VALUE.encode() + b"yy")
    egress.api.behave = say(reply(echoed))
    _, _, answer = await client.request(egress.head(WITH_TOKEN))
    assert len(answer) == len(echoed)
    assert answer.count(b"*") >= len(VALUE) * 8 // 6 - 1


async def test_a_value_that_is_echoed_in_a_header_is_masked(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(reply(b"", fields=f"X-Echo: {VALUE}\r\n".encode()))
    _, headers, _ = await client.request(egress.head(WITH_TOKEN))
    assert headers["x-echo"] == "*" * len(VALUE)


async def test_what_the_host_says_of_its_status_is_not_repeated(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(f"HTTP/1.1 200 {VALUE}\r\nContent-Length: 0\r\n\r\n".encode())
    await client.send(egress.head(WITH_TOKEN))
    assert (await client.receive()).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_trailers_and_interim_answers_are_not_passed_back(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(
        f"HTTP/1.1 103 Early Hints\r\nLink: {VALUE}\r\n\r\n".encode(),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Echo\r\n\r\n",
        f"2\r\nhi\r\n0\r\nX-Echo: {VALUE}\r\n\r\n".encode(),
    )
    status, headers, body = await client.request(egress.head(WITH_TOKEN, "Connection: close"))
    assert (status, body) == (200, b"hi")
    assert "trailer" not in headers
    assert VALUE.encode() not in await client.receive_all()


async def test_the_gateway_gets_the_sessions_own_key(egress: EgressFixture) -> None:
    egress.gateway.behave = say(reply(f"key {GATEWAY_KEY}".encode()))
    client = await egress.client()
    request = (
        b"POST http://gateway.internal/v1/chat/completions HTTP/1.1\r\nHost: gateway.internal\r\n"
        b"Authorization: Bearer made-up\r\nContent-Length: 2\r\n\r\n{}"
    )
    status, _, body = await client.request(request, "POST")
    assert (status, body) == (200, b"key " + b"*" * len(GATEWAY_KEY))
    fields = egress.gateway.peers[0].fields
    assert fields["authorization"] == f"Bearer {GATEWAY_KEY}"
    assert egress.gateway.peers[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


@pytest.mark.parametrize("port", [443, 80])
async def test_the_gateway_is_reached_through_tunnels_too(egress: EgressFixture, port: int) -> None:
    egress.gateway.behave = say(reply(b"hello"))
    client = await egress.client()
    await client.connect("gateway.internal", port)
    if port == 443:
        await client.handshake(egress.trust, "gateway.internal")
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.internal\r\n\r\n"
    assert (await client.request(request, "POST"))[2] == b"hello"


async def test_what_a_session_may_read_of_the_gateway_is_all_that_it_reaches(
    egress: EgressFixture,
) -> None:
    async def asked(line: str) -> tuple[int, str | None, bytes]:
        method, path = line.split(" ")
        client = await egress.client()
        request = (
            f"{method} http://gateway.internal{path} HTTP/1.1\r\nHost: gateway.internal\r\n"
            "Content-Length: 0\r\n\r\n"
        )
        status, headers, body = await client.request(request.encode(), method)
        return status, headers.get("x-tollhouse-egress"), body

    egress.gateway.behave = say(reply(b"told"))
    assert (await asked("GET /v1/key"))[:2] == (404, "no_route")
    egress.session.reads = frozenset({b"/v1/key"})
    assert await asked("GET /v1/key?limit=1") == (200, None, b"told")
    assert egress.gateway.peers[0].fields["authorization"] == f"Bearer {GATEWAY_KEY}"
    others = ("DELETE /v1/key", "GET /v1/key/x", "GET /v1/chat/completions/../key", "GET /")
    for line in (*others, "GET /v1/keys"):
        assert (await asked(line))[:2] == (404, "no_route")
    assert len(egress.gateway.peers) == 1


async def test_a_password_is_asked_for_where_there_is_one(egress: EgressFixture) -> None:
    await egress.restart(password="let-me-in")
    with pytest.raises(ConnectRefusedError) as refused:
        await egress.tunnel()
    assert b"407 " in refused.value.head
    assert b"Proxy-Authenticate: Basic" in refused.value.head
    client = await egress.client()
    credentials = base64.b64encode(b"tollhouse:let-me-in").decode()
    await client.connect(API, egress.port_of(API), f"Proxy-Authorization: Basic {credentials}")
    await client.handshake(egress.trust, API)
    status, _, _ = await client.request(egress.head(WITH_TOKEN))
    assert status == 200
    assert b"roxy-authorization" not in egress.api.peers[0].arrived


# What of a client's requests reaches the host: as it was, or written anew, or not at all


@pytest.mark.parametrize("spelling", ["API.example", "api.example.", "Api.Example."])
async def test_the_host_gets_its_name_in_one_spelling(
    egress: EgressFixture, client: Client, spelling: str
) -> None:
    port = egress.api.port
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
async def test_a_path_goes_on_as_it_is(egress: EgressFixture, client: Client, path: str) -> None:
    await client.request(egress.head(WITH_TOKEN, request=f"GET {path} HTTP/1.1"))
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
    egress: EgressFixture, client: Client, request_line: str, field: str, reason: str
) -> None:
    await client.send(egress.head(WITH_TOKEN, field, request=request_line) + b"abc")
    _, headers, _ = await client.response("GET")
    assert headers["x-tollhouse-egress"] == reason
    assert egress.api.requests == 0


@pytest.mark.parametrize("tunnelled", [False, True])
@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\n%bTransfer-Encoding: xchunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n1\r\naXX\r\n",
        b"CONNECT / HTTP/1.1\r\n%b\r\n",
    ],
)
async def test_what_is_no_http_is_a_400_before_the_end(
    egress: EgressFixture, client: Client, sent: bytes, *, tunnelled: bool
) -> None:
    used = client if tunnelled else await egress.client()
    host = egress.head(WITH_TOKEN).split(b"\r\n", 1)[1].removesuffix(b"\r\n")
    with structlog.testing.capture_logs() as log:
        await used.send(sent.replace(b"%b", host))
        heard = await used.receive_all()
    status = 405 if tunnelled and sent.startswith(b"CONNECT") else 400
    assert heard.startswith(b"HTTP/1.1 %d " % status)
    assert heard.count(b"HTTP/1.1 ") == 1
    assert log == []


async def test_what_follows_a_refused_request_is_not_read(
    egress: EgressFixture, client: Client
) -> None:
    refused = egress.head(WITH_TOKEN, request="TRACE / HTTP/1.1")
    await client.send(refused + egress.head(WITH_TOKEN))
    heard = await client.receive_all()
    assert heard.count(b"HTTP/1.1 ") == 1
    assert egress.api.requests == 0


# What of a host's answers reaches the client, on a connection that has held a value


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
    await client.request(egress.head(WITH_TOKEN))
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
    await client.request(egress.head(WITH_TOKEN))
    await client.request(egress.head(WITH_TOKEN))
    assert len(prepared) == 1
    assert threading.current_thread() not in prepared


async def test_an_answer_to_a_later_request_has_to_be_readable_too(
    egress: EgressFixture, client: Client
) -> None:
    await client.request(egress.head(WITH_TOKEN))
    egress.api.behave = say(reply(b"\x1f\x8b", fields=b"Content-Encoding: gzip\r\n"))
    status, headers, _ = await client.request(egress.head("Accept-Encoding: gzip"))
    assert (status, headers["x-tollhouse-egress"]) == (502, "compressed")
    assert b"gzip" not in egress.api.peers[0].arrived


async def test_a_host_that_says_more_than_it_was_asked_is_not_asked_again(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(reply(b"asked") + reply(b"unasked"))
    assert (await client.request(egress.head(WITH_TOKEN)))[2] == b"asked"
    assert await asyncio.wait_for(client.receive_all(), 20) == b""


async def test_what_a_host_sends_without_a_request_is_not_the_next_answer(
    egress: EgressFixture, client: Client
) -> None:
    egress.api.behave = say(reply(b"first"))
    assert (await client.request(egress.head(WITH_TOKEN)))[2] == b"first"
    egress.api.peers[0].transport.write(reply(b"unasked"))
    (connection,) = egress.session.connections
    to_host = connection._to_host  # type: ignore[attr-defined]  # noqa: SLF001 - where it arrives
    await until(lambda: not to_host.quiet)
    egress.api.behave = say(reply(b"second"))
    assert (await client.request(egress.head(WITH_TOKEN)))[2] == b"second"
    assert [peer.requests for peer in egress.api.peers] == [1, 1]


# Fields


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Content-Encoding", "Set-Cookie"])
async def test_an_answer_that_calls_a_field_of_the_clients_its_own_is_refused(
    egress: EgressFixture, client: Client, name: str
) -> None:
    fields = f"Connection: {name}\r\n".encode()
    egress.api.behave = say(reply(b"body", fields=fields))
    status, headers, body = await client.request(egress.head(WITH_TOKEN))
    assert (status, headers["x-tollhouse-egress"]) == (502, "broken")
    assert b"Connection" not in body


@pytest.mark.parametrize("lines", [(), (WITH_TOKEN,)], ids=["without a value", "with a value"])
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
    await client.send(egress.head(*(lines or (WITH_TOKEN, *UPGRADE))))
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
    await client.send(egress.head(WITH_TOKEN))
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
