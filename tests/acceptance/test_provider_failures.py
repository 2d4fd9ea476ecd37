"""A provider that fails before the first byte, through the running gateway."""

import socket
from collections.abc import Generator

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import start_upstream

FAILURES = {
    "cutter/garbage": ("garbage", 502),
    "cutter/proxy-page": ("html-502", 502),
    "cutter/reset": ("cut:0:rst", 502),
    "cutter/slow": ("hang", 504),
    "cutter/broken": ("status:500", 502),
    "cutter/overloaded": ("status:503", 503),
    "cutter/our-key-is-wrong": ("status:401", 502),
    "cutter/refused": ("status:400", 400),
    "cutter/repeats-headers": ("headers:400", 400),
    "cutter/repeats-headers-of-413": ("headers:413", 413),
    "cutter/repeats-headers-in-a-reply": ("headers:200", 502),
    "cutter/limited": ("status:429:retry=7", 429),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with socket.socket() as closed, start_upstream() as upstream:
        closed.bind(("127.0.0.1", 0))
        config = upstream.config(
            {model: behaviour for model, (behaviour, _) in FAILURES.items()},
            provider="    head_seconds: 1\n",
        )
        config = config.replace(
            "models:\n",
            "  - slug: nobody\n    name: Nobody\n    kind: openai_compatible\n"
            f"    base_url: http://127.0.0.1:{closed.getsockname()[1]}/v1\n"
            "models:\n"
            "  - id: nobody/home\n    context_length: 8192\n"
            "    endpoints: [{provider: nobody, model: x, pricing: free}]\n"
            "  - id: two/endpoints\n    context_length: 8192\n    endpoints:\n"
            "      - {provider: nobody, model: y, pricing: free}\n"
            "      - {provider: cutter, model: 'status:429', pricing: free}\n"
            "      - {provider: cutter, model: echo, pricing: free}\n"
            "  - id: cooled/down\n    context_length: 8192\n    endpoints:\n"
            "      - {provider: cutter, model: 'status:529', pricing: free}\n"
            "      - {provider: cutter, model: large-2026, pricing: free}\n",
        )
        folder = tmp_path_factory.mktemp("failures")
        with start_server(folder, config=config) as running:
            yield running


def ask(server: ServerProcess, model: str, *, stream: bool) -> httpx2.Response:
    body = {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": "a secret of ours"}],
    }
    return httpx2.post(
        f"{server.base_url}/chat/completions", json=body, headers=server.authorization, timeout=20
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("model", FAILURES)
def test_each_failure_has_its_status_and_names_the_provider(
    server: ServerProcess, model: str, *, stream: bool
) -> None:
    status = FAILURES[model][1]
    reply = ask(server, model, stream=stream)
    error = reply.json()["error"]
    assert reply.status_code == error["code"] == status
    assert error["metadata"]["provider_name"] == "Cutter"
    assert "Traceback" not in reply.text


def test_an_endpoint_that_failed_is_asked_after_the_others_for_a_while(
    server: ServerProcess,
) -> None:
    asked = [_attempts(server, ask(server, "cooled/down", stream=False)) for _ in range(2)]
    assert asked == [[529, 200], [200]]


def _attempts(server: ServerProcess, reply: httpx2.Response) -> list[int]:
    told = httpx2.get(
        f"{server.base_url}/generation",
        params={"id": reply.json()["id"]},
        headers=server.authorization,
    )
    return [each["status"] for each in told.json()["data"]["provider_responses"]]


def test_a_provider_that_cannot_be_reached_is_a_502(server: ServerProcess) -> None:
    reply = ask(server, "nobody/home", stream=False)
    assert reply.status_code == 502
    assert reply.json()["error"]["metadata"]["provider_name"] == "Nobody"


def test_the_provider_s_own_hint_to_wait_is_passed_on(server: ServerProcess) -> None:
    assert ask(server, "cutter/limited", stream=False).headers["retry-after"] == "7"


def test_no_hint_is_made_up(server: ServerProcess) -> None:
    assert "retry-after" not in ask(server, "cutter/overloaded", stream=False).headers


def test_the_next_endpoint_answers_where_the_first_ones_could_not(server: ServerProcess) -> None:
    reply = ask(server, "two/endpoints", stream=False)
    assert reply.status_code == 200
    assert reply.json()["provider"] == "Cutter"
    found = httpx2.get(
        f"{server.base_url}/generation",
        params={"id": reply.json()["id"]},
        headers=server.authorization,
    ).json()["data"]
    tried = [response["provider_name"] for response in found["provider_responses"]]
    assert tried == ["Nobody", "Cutter", "Cutter"]
