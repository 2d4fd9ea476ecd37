"""What the server checks before any route: origins, keys, regions, bodies, malformed requests."""

import json
import re
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server

CONFIG = """
server:
  cors_origins: ["https://app.example", "null"]
  regional_hostnames: ["eu.*"]
  body_limit_bytes: 65536
  trusted_proxies: ["127.0.0.9"]
  max_connections_per_address: 64
  max_requests_per_address_per_minute: 600
providers:
  - {slug: simulated, kind: simulated}
"""
CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "hi"}]}
PROXY = "127.0.0.9"
"""Who connects from here is a trusted reverse proxy."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("way-in"), config=CONFIG) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Generator[httpx2.Client]:
    with httpx2.Client(base_url=server.origin, timeout=20) as client:
        yield client


def raw(server: ServerProcess, *pieces: bytes) -> bytes:
    """Send bytes as they are, hang up once it answers; return everything until the server closes.

    Hanging up earlier is what a client does that went away, and needs no answer.
    """
    address = urlsplit(server.origin)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        with suppress(OSError):  # it may refuse and close while we are still sending
            for piece in pieces:
                connection.sendall(piece)
        received = connection.recv(65_536)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65_536):
            received += piece
        return received


def connect(server: ServerProcess, source: str = "127.0.0.1") -> socket.socket:
    """Connect from an address of this machine."""
    address = urlsplit(server.origin)
    place = (address.hostname or "", address.port or 0)
    return socket.create_connection(place, timeout=20, source_address=(source, 0))


def converse(server: ServerProcess, *pieces: bytes, source: str = "127.0.0.1") -> bytes:
    """Send bytes as they are; return everything until the server closes of its own accord."""
    with connect(server, source) as connection:
        with suppress(OSError):  # it may refuse and close while we are still sending
            for piece in pieces:
                connection.sendall(piece)
        received = b""
        while piece := connection.recv(65_536):
            received += piece
        return received


def statuses(received: bytes) -> list[int]:
    return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)]


def proxied(server: ServerProcess, path: str, **headers: str) -> int:
    """Ask with a good key through the trusted proxy; return the status."""
    transport = httpx2.HTTPTransport(local_address=PROXY)
    with httpx2.Client(base_url=server.origin, transport=transport, timeout=20) as client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.get(path, headers={**server.authorization, **given}).status_code


def error_of(response: bytes) -> tuple[int, Any]:
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)["error"]


# Keys


@pytest.mark.parametrize("path", ["/v1/key", "/api/v1/key", "/v1/chat/completions", "/v1/nothing"])
def test_without_a_key_every_api_route_is_a_401(http: httpx2.Client, path: str) -> None:
    reply = http.get(path)
    assert reply.status_code == 401
    assert reply.json()["error"] == {"code": 401, "message": "No auth credentials found"}


@pytest.mark.parametrize("path", ["/v1/interns", "/v1/vault/secrets/a", "/v1/interns/x/provision"])
@pytest.mark.parametrize("key", [None, "Bearer sk-th-v1-wrong"])
def test_intern_and_vault_routes_have_a_401_text_of_their_own(
    http: httpx2.Client, path: str, key: str | None
) -> None:
    reply = http.get(path, headers={} if key is None else {"Authorization": key})
    assert reply.json()["error"] == {"code": 401, "message": "Invalid or missing API key"}


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/key", {"Authorization": "bEaReR   {key}"}, 200),
        ("/v1/key", {"Authorization": "Bearer"}, 401),
        ("/v1/key", {"Authorization": "Basic {key}"}, 401),
        ("/v1/key", {"Authorization": "{key}"}, 401),
        ("/v1/key", {"Authorization": "Bearer \xff\xfe"}, 401),
        ("/v1/key", {"X-Api-Key": "{key}"}, 401),
        ("/v1/messages", {"X-Api-Key": "{key}"}, 405),
        ("/v1/messages", {"X-Api-Key": "wrong"}, 401),
        ("/v1/messages", {"Authorization": "Bearer {key}", "X-Api-Key": "wrong"}, 405),
        ("/v1/messages", {"Authorization": "Basic x", "X-Api-Key": "{key}"}, 405),
        ("/v1/messages", {"Authorization": "Bearer wrong", "X-Api-Key": "{key}"}, 401),
    ],
)
def test_a_key_is_a_bearer_token_or_at_messages_an_x_api_key(
    server: ServerProcess, http: httpx2.Client, path: str, headers: dict[str, str], status: int
) -> None:
    sent = {
        name: value.format(key=server.api_key).encode("latin-1") for name, value in headers.items()
    }
    reply = http.get(path, headers=sent)
    assert reply.status_code == status
    assert ("www-authenticate" in reply.headers) == (status == 401)


def test_models_need_no_key(http: httpx2.Client) -> None:
    assert "simulated/echo" in [model["id"] for model in http.get("/v1/models").json()["data"]]


def test_a_management_key_runs_no_inference(server: ServerProcess, http: httpx2.Client) -> None:
    headers = {"Authorization": f"Bearer {server.management_key}"}
    reply = http.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert reply.status_code == 403


def test_a_disabled_key_is_refused_from_the_next_request_on(
    server: ServerProcess, http: httpx2.Client
) -> None:
    manager = {"Authorization": f"Bearer {server.management_key}"}
    made = http.post("/v1/keys", json={"name": "short-lived"}, headers=manager).json()
    key = {"Authorization": f"Bearer {made['key']}"}
    assert http.post("/v1/chat/completions", json=CHAT, headers=key).status_code == 200
    http.patch(f"/v1/keys/{made['data']['hash']}", json={"disabled": True}, headers=manager)
    assert http.post("/v1/chat/completions", json=CHAT, headers=key).status_code == 401


# Origins


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example"])
def test_an_origin_that_is_not_listed_is_a_400_even_with_a_key(
    server: ServerProcess, http: httpx2.Client, origin: str
) -> None:
    headers = {**server.authorization, "Origin": origin}
    reply = http.get("/v1/key", headers=headers)
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == 400


def test_the_origin_is_judged_before_the_key(http: httpx2.Client) -> None:
    assert http.get("/v1/key", headers={"Origin": "https://evil.example"}).status_code == 400


def test_a_listed_origin_gets_its_preflight_without_a_key(http: httpx2.Client) -> None:
    headers = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    reply = http.options("/v1/chat/completions", headers=headers)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in reply.headers["access-control-allow-methods"]


def test_a_preflight_of_another_origin_is_a_400(http: httpx2.Client) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert http.options("/v1/chat/completions", headers=headers).status_code == 400


def test_a_listed_origin_may_read_replies_and_errors(
    server: ServerProcess, http: httpx2.Client
) -> None:
    origin = {"Origin": "https://app.example"}
    for reply in (
        http.get("/v1/key", headers={**server.authorization, **origin}),
        http.get("/v1/key", headers=origin),
    ):
        assert reply.headers["access-control-allow-origin"] == "https://app.example"
        readable = set(reply.headers["access-control-expose-headers"].split(", "))
        assert readable >= {"retry-after", "x-generation-id"}
        assert readable >= {f"x-ratelimit-{name}" for name in ("limit", "remaining", "reset")}


def test_our_own_origin_may_call(server: ServerProcess, http: httpx2.Client) -> None:
    headers = {**server.authorization, "Origin": server.origin}
    assert http.get("/v1/key", headers=headers).status_code == 200


@pytest.mark.parametrize(("source", "status"), [(PROXY, 200), ("127.0.0.1", 400)])
def test_behind_a_trusted_proxy_our_own_origin_has_the_proxys_scheme(
    server: ServerProcess, source: str, status: int
) -> None:
    request = (
        b"GET /v1/models HTTP/1.1\r\nhost: gw.example\r\norigin: https://gw.example\r\n"
        b"x-forwarded-proto: https\r\nconnection: close\r\n\r\n"
    )
    assert statuses(converse(server, request, source=source)) == [status]


# Regions


def test_a_regional_hostname_is_a_403_without_metadata(
    server: ServerProcess, http: httpx2.Client
) -> None:
    reply = http.get("/v1/key", headers={**server.authorization, "Host": "eu.tollhouse.example"})
    assert reply.status_code == 403
    assert set(reply.json()["error"]) == {"code", "message"}


@pytest.mark.parametrize(
    ("target", "status"), [("http://eu.tollhouse.example:80", 403), ("http://gw.example", 200)]
)
def test_the_host_of_an_absolute_target_replaces_the_header(
    server: ServerProcess, target: str, status: int
) -> None:
    other = "gw.example" if status == 403 else "eu.tollhouse.example"
    head = f"GET {target}/v1/key HTTP/1.1\r\nhost: {other}\r\nconnection: close\r\n"
    key = f"authorization: Bearer {server.api_key}\r\n\r\n"
    assert statuses(converse(server, head.encode() + key.encode())) == [status]


def test_the_key_is_judged_before_the_region(http: httpx2.Client) -> None:
    assert http.get("/v1/key", headers={"Host": "eu.tollhouse.example"}).status_code == 401


def test_a_regional_hostname_takes_no_inference(server: ServerProcess, http: httpx2.Client) -> None:
    headers = {**server.authorization, "Host": "eu.tollhouse.example"}
    assert http.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 403


def test_a_forwarded_host_of_a_stranger_does_not_count(
    server: ServerProcess, http: httpx2.Client
) -> None:
    headers = {**server.authorization, "X-Forwarded-Host": "eu.tollhouse.example"}
    assert http.get("/v1/key", headers=headers).status_code == 200


def test_a_forwarded_host_of_a_trusted_proxy_counts(server: ServerProcess) -> None:
    assert proxied(server, "/v1/key", x_forwarded_host="eu.tollhouse.example") == 403
    assert proxied(server, "/v1/key", x_forwarded_host="gw.example") == 200


def test_what_is_no_part_of_the_api_is_answered_on_a_regional_hostname(http: httpx2.Client) -> None:
    assert http.get("/healthz", headers={"Host": "eu.tollhouse.example"}).status_code == 200


# The rate and the connections of an address


def test_more_requests_than_an_address_may_send_are_a_429_that_says_when(
    server: ServerProcess,
) -> None:
    client = b"x-forwarded-for: 9.9.9.9, 203.0.113.1\r\n"
    key = b"GET /v1/key HTTP/1.1\r\nhost: x\r\n%b\r\n"
    chat = b"GET /v1/interns/an-id/chat/completions HTTP/1.1\r\nhost: x\r\n%b\r\n"
    received = converse(
        server, key % client * 700 + chat % client * 100 + key % b"connection: close\r\n",
        source=PROXY,
    )  # fmt: skip
    answers = re.split(rb"(?=HTTP/1\.1 \d)", received)[1:]
    assert statuses(received)[:600] == [401] * 600
    refused = [each for each in answers[600:700] if b" 429 " in each]
    assert error_of(refused[0])[1]["metadata"] == {"error_type": "rate_limit_exceeded"}
    refused[0] = refused[0].lower()
    assert b"x-ratelimit-limit: 600" in refused[0]
    assert b"x-ratelimit-remaining: 0" in refused[0]
    assert b"x-ratelimit-reset: " in refused[0]
    assert b"retry-after" not in refused[0]
    refused = [each for each in answers[700:800] if b" 429 " in each]
    assert b"retry-after: 1\r\n" in refused[0].lower()
    assert error_of(refused[0])[1]["metadata"] == {"reason": "rate_limited", "retryable": True}
    assert statuses(answers[-1]) == [401], "the proxy itself has sent few"


def test_an_address_holds_no_more_connections_than_its_limit(server: ServerProcess) -> None:
    source = "127.0.0.5"
    request = last("/healthz")
    with ExitStack() as stack:
        held = [stack.enter_context(connect(server, source)) for _ in range(64)]
        with connect(server, source) as refused:
            assert refused.recv(65_536).startswith(b"HTTP/1.1 429 ")
        assert statuses(converse(server, request)) == [200], "another address has its own limit"
        held[0].sendall(request)
        while held[0].recv(65_536):
            pass
        held[0].close()
        assert statuses(converse(server, request, source=source)) == [200]


# Bodies and methods


def test_a_body_over_the_limit_is_a_413(server: ServerProcess, http: httpx2.Client) -> None:
    reply = http.post("/v1/chat/completions", content=b"x" * 70_000, headers=server.authorization)
    assert reply.status_code == 413
    assert reply.json()["error"]["code"] == 413


def test_a_chunked_body_over_the_limit_is_a_413(server: ServerProcess, http: httpx2.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield from (b"x" * 10_000 for _ in range(20))

    reply = http.post("/v1/chat/completions", content=pieces(), headers=server.authorization)
    assert reply.status_code == 413


def test_a_declared_length_over_the_limit_is_refused_before_the_body_is_sent(
    server: ServerProcess,
) -> None:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
        b"authorization: Bearer " + server.api_key.encode() + b"\r\n"
        b"content-length: 99999999\r\n\r\n"
    )
    assert error_of(raw(server, head))[0] == 413


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/batches"])
def test_who_sends_a_body_far_over_the_limit_to_its_end_reads_the_413(
    server: ServerProcess, path: str
) -> None:
    """The standard library's client reads once all is sent; a reset before hides the answer."""
    megabytes = 256
    client = HTTPConnection(urlsplit(server.origin).netloc, timeout=60)
    with closing(client):
        client.putrequest("POST", path)
        client.putheader("Authorization", f"Bearer {server.api_key}")
        client.putheader("Content-Type", "application/json")
        client.putheader("Content-Length", str(megabytes << 20))
        client.endheaders()
        for _ in range(megabytes):
            client.send(bytes(1 << 20))
        answer = client.getresponse()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["code"] == 413


def test_a_wrong_method_is_a_405_that_names_the_right_one(
    server: ServerProcess, http: httpx2.Client
) -> None:
    reply = http.get("/v1/chat/completions", headers=server.authorization)
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")


def test_json_that_is_broken_is_a_400_that_names_the_position(
    server: ServerProcess, http: httpx2.Client
) -> None:
    reply = http.post(
        "/v1/chat/completions", content=b'{"model": nope}', headers=server.authorization
    )
    assert reply.status_code == 400
    assert "byte 11" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "says"),
    [
        ("embeddings", {"input": ["a"] * 2049}, "input: must be at most 2048 texts or lists"),
        ("embeddings", {"input": [[1]] * 2049}, "input: must be at most 2048 texts or lists"),
        ("embeddings", {"input": [1] * 2049}, None),
        ("chat/completions", {"stop": ["a"] * 1025}, "stop: must be at most 1024 texts."),
        ("messages", {"stop_sequences": ["a"] * 1025}, "stop_sequences: must be at most 1024"),
        ("chat/completions", {"stop": "a" * 3000}, None),
        ("chat/completions", {"models": ["simulated/echo"] * 33}, "models: must be at most 32"),
        ("responses", {"provider": {"order": ["a"] * 257}}, "provider.order: Expected `array` of"),
    ],
)
def test_a_list_that_no_provider_takes_is_a_400_that_names_its_bound(
    server: ServerProcess, http: httpx2.Client, path: str, fields: dict[str, Any], says: str | None
) -> None:
    model = "simulated/embedding" if path == "embeddings" else "simulated/echo"
    body = {**CHAT, "input": "hi", "max_tokens": 9, "model": model} | fields
    reply = http.post(f"/v1/{path}", json=body, headers=server.authorization)
    message = reply.json()["error"]["message"] if reply.status_code == 400 else None
    assert (message or "").startswith(says or "")
    assert reply.status_code == (400 if says else 200)


@pytest.mark.parametrize(
    ("path", "headers", "status", "says"),
    [
        ("/v1//chat/completions", {}, 200, ""),
        ("/v1/chat/completions/", {}, 200, ""),
        ("/v1/chat//completions", {}, 404, "No such route. Two slashes stand in the path."),
        ("/v1/chat/completions", {"Origin": "null"}, 200, ""),
        ("/v1/chat/completions", {"Content-Encoding": "identity"}, 200, ""),
        (
            "/v1/chat/completions",
            {"Content-Encoding": "gzip"},
            415,
            "Content-Encoding: gzip is not",
        ),
        ("/v1/batches", {"Content-Encoding": "zstd"}, 415, "Content-Encoding: zstd is not"),
        ("/v1/estimate", {"Content-Encoding": "a b"}, 415, "Content-Encoding: is not taken"),
    ],
)
def test_a_mark_before_json_is_passed_over_and_paths_and_codings_are_told(
    server: ServerProcess,
    http: httpx2.Client,
    path: str,
    headers: dict[str, str],
    status: int,
    says: str,
) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(CHAT).encode()
    reply = http.post(path, content=content, headers={**server.authorization, **headers})
    assert reply.status_code == status
    assert reply.json().get("error", {}).get("message", "").startswith(says)


# What could be read in two ways


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"GET /healthz HTTP/1.1\r\n", "The header Host is missing."),
        (b"GET /v1/models HTTP/1.1\r\nx: y\r\n", "The header Host is missing."),
        (
            b"GET /healthz HTTP/1.1\r\nhost: a\r\nhost: b\r\n",
            "The header Host was sent more than once.",
        ),
        (
            b"GET /v1/key HTTP/1.1\r\nhost: a\r\nauthorization: a\r\nAuthorization: b\r\n",
            "The header Authorization was sent more than once.",
        ),
        (
            b"POST /v1/messages HTTP/1.1\r\nhost: a\r\nx-api-key: a\r\nx-api-key: b\r\n",
            "The header X-Api-Key was sent more than once.",
        ),
        (
            b"GET /v1/key HTTP/1.1\r\nhost: a\r\nidempotency-key: a\r\nidempotency-key: b\r\n",
            "The header Idempotency-Key was sent with two values.",
        ),
    ],
)
def test_a_host_or_a_key_that_is_missing_or_doubled_is_a_400(
    server: ServerProcess, head: bytes, message: str
) -> None:
    status, error = error_of(raw(server, head + b"\r\n"))
    assert (status, error["message"]) == (400, message)


def test_http_1_0_needs_no_host(server: ServerProcess) -> None:
    assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")


# Several requests on one connection, and what ends it


def last(path: str, method: str = "GET") -> bytes:
    """Return a request after whose answer the connection is closed."""
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    return head.encode()


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer KEY\r\n"
BODY = json.dumps(CHAT).encode()
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
OK = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
NO_KEY = OK.replace(b"/healthz", b"/v1/key")
END = last("/healthz")
EVIL = b"DELETE /evil HTTP/1.1\r\nhost: x\r\n\r\n"


def sized(head: bytes, body: bytes) -> bytes:
    return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)


def in_pieces(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))


UPGRADE = sized(HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n", EVIL)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((OK + NO_KEY + sized(HEAD, BODY) + OK + END,), [200, 401, 200, 200, 200]),
        (in_pieces(OK + sized(HEAD, BODY) + END, 7), [200, 200, 200]),
        ((sized(HEAD, BODY) + b"garbage\r\n\r\n",), [200, 400]),
        ((sized(HEAD.replace(b"Bearer", b"Basic"), EVIL)[:-9], EVIL[-9:] + END), [401, 200]),
        ((sized(HEAD + b"expect: 100-continue\r\n", BODY), END), [100, 200, 200]),
        ((CHUNKED, *(b"1\r\n%c\r\n" % byte for byte in BODY), b"0\r\n\r\n", END), [200, 200]),
        ((CHUNKED, b"no chunk\r\n"), [400]),
        ((CHUNKED, *[b"1;" + b"x" * 1000 + b"\r\na\r\n"] * 1000), [400]),
        ((CHUNKED + b"0\r\ntrailer: ", *[b"x" * 1000] * 1000), [400]),
        ((OK.replace(b"/1.1", b"/1.0"),), [200]),
        ((OK.replace(b"/1.1\r\n", b"/1.0\r\nconnection: keep-alive\r\n"), END), [200, 200]),
        ((UPGRADE + END,), [400, 200]),
        ((UPGRADE[: -len(EVIL)], EVIL + END), [400, 200]),
        ((b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n",), [400]),
        (in_pieces(OK[:-2] + b"x: " + b"a" * 70_000 + b"\r\n\r\n", 1000), [431]),
    ],
    ids=[
        *("pipelined", "in-pieces", "garbage-in-its-turn", "refused-body-is-thrown-away"),
        *("expect", "small-chunks", "no-chunk", "chunk-extensions", "endless-trailer"),
        *("http-1.0", "http-1.0-keep-alive", "upgrade", "upgrade-in-pieces", "connect"),
        "large-head-in-pieces",
    ],
)
def test_bytes_are_requests_that_are_answered_in_their_order(
    server: ServerProcess, pieces: tuple[bytes, ...], expected: list[int]
) -> None:
    key = server.api_key.encode()
    received = converse(server, *(piece.replace(b"KEY", key) for piece in pieces))
    assert statuses(received) == expected
    assert received.lower().count(b"connection: close\r\n") == 1


def test_a_head_alone_answers_a_head_request(server: ServerProcess) -> None:
    received = converse(server, last("/healthz", "HEAD"))
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"content-length: " in received
    assert received.endswith(b"\r\n\r\n")


def test_a_stream_for_http_1_0_has_no_chunks_and_ends_with_the_connection(
    server: ServerProcess,
) -> None:
    body = json.dumps({**CHAT, "stream": True}).encode()
    request = sized(HEAD, body).replace(b"/1.1", b"/1.0").replace(b"KEY", server.api_key.encode())
    head, _, stream = converse(server, request).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert stream.startswith((b"data: ", b": "))
    assert stream.endswith(b"data: [DONE]\n\n")


# What is no HTTP at all


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_garbage_is_a_400_with_the_envelope(server: ServerProcess, garbage: bytes) -> None:
    status, error = error_of(raw(server, garbage))
    assert status == error["code"] == 400


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 300_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
    ids=["endless", "long-field", "many-fields", "long-path"],
)
def test_a_head_over_64_kb_is_refused(server: ServerProcess, head: bytes) -> None:
    status, error = error_of(raw(server, head))
    assert status == error["code"] == 431


def test_the_server_serves_after_garbage(http: httpx2.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
