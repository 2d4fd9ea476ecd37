"""Nobody gets in without the token, on any path, and nothing is told to who has none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from websockets.exceptions import InvalidStatus

from tests.component.sandbox.daemon.daemon_process import text_of

if TYPE_CHECKING:
    from tests.component.sandbox.daemon.daemon_process import DaemonProcess

PATHS = ("/healthz", "/files/", "/files/secret", "/terminals", "/terminal", "/nowhere")


@pytest.fixture
def daemon(shared_daemon: DaemonProcess) -> DaemonProcess:
    return shared_daemon


async def test_health_is_told_with_the_version_of_the_protocol(daemon: DaemonProcess) -> None:
    async with daemon.client() as client:
        response = await client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "version": 1,
        "intern": {"id": "1d", "name": "ada"},
        "disk_full": False,
        "limits_enforced": [],
    }


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_token_every_path_is_a_401(daemon: DaemonProcess, path: str) -> None:
    async with daemon.client(headers={}) as client:
        response = await client.get(path)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert text_of(response) == "A bearer token is needed."


@pytest.mark.parametrize("path", PATHS)
async def test_with_a_wrong_token_every_path_is_a_401(daemon: DaemonProcess, path: str) -> None:
    async with daemon.client(headers={"Authorization": f"Bearer {daemon.token}x"}) as client:
        response = await client.get(path)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    assert daemon.token not in response.text


async def test_a_handshake_without_a_token_is_refused_before_it_is_one(
    daemon: DaemonProcess,
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await daemon.connect(headers={})
    response = refused.value.response
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert json.loads(response.body or b"")["error"]["code"] == 401


async def test_a_handshake_that_is_refused_starts_no_shell(daemon: DaemonProcess) -> None:
    with pytest.raises(InvalidStatus):
        await daemon.connect(headers={"Authorization": "Bearer wrong"})
    assert daemon.processes() == [daemon.process.pid]


async def test_what_is_not_there_is_a_404(daemon: DaemonProcess) -> None:
    async with daemon.client() as client:
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
    daemon: DaemonProcess, method: str, path: str, allowed: str
) -> None:
    async with daemon.client() as client:
        response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["Allow"] == allowed
