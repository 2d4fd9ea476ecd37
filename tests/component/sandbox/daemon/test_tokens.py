"""Nobody gets in without the token, on any path, and nothing is told to who has none."""

import asyncio

import httpx2
import pytest

from tests.component.sandbox.daemon.daemon_process import DaemonProcess, text_of

PATHS = ("/healthz", "/files/", "/files/secret", "/terminals", "/terminal", "/nowhere")


async def test_health_is_told_with_the_version_of_the_protocol(client: httpx2.AsyncClient) -> None:
    response = await client.get("/healthz")
    assert response.status_code == 200
    intern = {"id": "1d", "name": "ada"}
    told = {"status": "ok", "version": 1, "intern": intern}
    assert response.json() == {**told, "disk_full": False, "limits_enforced": []}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("is_given", [False, True], ids=["without a token", "with a wrong token"])
async def test_every_path_is_a_401(daemon: DaemonProcess, path: str, *, is_given: bool) -> None:
    headers = {"Authorization": f"Bearer {daemon.token}x"} if is_given else {}
    async with daemon.client(headers=headers) as client:
        response = await client.get(path)
    assert response.status_code == 401
    if is_given:
        assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
        assert daemon.token not in response.text
    else:
        assert response.headers["WWW-Authenticate"] == "Bearer"
        assert text_of(response) == "A bearer token is needed."


async def test_a_handshake_without_a_token_is_refused_before_it_is_one(
    daemon: DaemonProcess,
) -> None:
    response = await daemon.refusal(headers={})
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert text_of(response) == "A bearer token is needed."
    await daemon.refusal(headers={"Authorization": "Bearer wrong"})
    assert daemon.processes() == [daemon.process.pid]  # no shell was started


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"PUT /files/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n1\r\na\r\n",
        b"PUT /files/a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX\r\n",
    ],
)
async def test_what_is_no_http_is_a_400_before_the_end(daemon: DaemonProcess, sent: bytes) -> None:
    reader, writer = await asyncio.open_unix_connection(daemon.path)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Traceback" not in daemon.log.read_bytes()


async def test_what_is_not_there_is_a_404(client: httpx2.AsyncClient) -> None:
    response = await client.get("/nowhere")
    assert response.status_code == 404
    assert text_of(response) == "There is nothing here."


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/healthz", "GET, HEAD"),
        ("PATCH", "/files/a", "GET, HEAD, PUT, DELETE"),
        ("GET", "/terminals/a", "DELETE"),
    ],
)
async def test_a_method_that_is_not_known_is_a_405(
    client: httpx2.AsyncClient, method: str, path: str, allowed: str
) -> None:
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["Allow"] == allowed
