"""What the server shows of itself: health, metrics, documentation, log."""

from collections.abc import Generator

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server

CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "open sesame"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("see"), args=["--log-level", "debug"]) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Generator[httpx2.Client]:
    with httpx2.Client(base_url=server.origin, timeout=20) as client:
        yield client


def test_the_root_says_what_this_is(http: httpx2.Client) -> None:
    assert http.get("/").json()["name"] == "Tollhouse"


def test_a_head_request_to_the_root_is_answered(http: httpx2.Client) -> None:
    reply = http.head("/")
    assert (reply.status_code, reply.content) == (200, b"")


def test_the_server_is_alive_and_ready(http: httpx2.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready", "problems": {}}


def test_the_description_is_openapi_3_1_with_a_server_that_ends_in_v1(http: httpx2.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "1.0.0"
    assert document["servers"][0]["url"].endswith("/v1")
    assert "post" in document["paths"]["/chat/completions"]


def test_the_documentation_loads_nothing_from_elsewhere(http: httpx2.Client) -> None:
    page = http.get("/docs").text
    assert "<html" in page
    assert "http://" not in page
    assert "https://" not in page
    assert http.get("/docs/page.js").headers["content-type"].startswith("text/javascript")


def test_metrics_are_open_to_this_machine(server: ServerProcess, http: httpx2.Client) -> None:
    http.post("/v1/chat/completions", json=CHAT, headers=server.authorization)
    assert 'tollhouse_generations_total{status="200"}' in http.get("/metrics").text


def test_metrics_that_were_asked_for_through_a_proxy_need_a_management_key(
    server: ServerProcess, http: httpx2.Client
) -> None:
    proxied = {"X-Forwarded-For": "203.0.113.9"}
    manager = {**proxied, "Authorization": f"Bearer {server.management_key}"}
    assert http.get("/metrics", headers=proxied).status_code == 401
    assert http.get("/metrics", headers={**proxied, **server.authorization}).status_code == 403
    assert http.get("/metrics", headers=manager).status_code == 200


def test_an_unknown_path_is_a_404_with_the_envelope(http: httpx2.Client) -> None:
    reply = http.get("/nothing")
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, 404)


def test_the_log_holds_neither_keys_nor_bodies(server: ServerProcess, http: httpx2.Client) -> None:
    http.post("/v1/chat/completions", json=CHAT, headers=server.authorization)
    http.post("/v1/chat/completions", content=b"open sesame", headers=server.authorization)
    log = server.stderr_text()
    assert server.api_key not in log
    assert server.management_key not in log
    assert "open sesame" not in log
