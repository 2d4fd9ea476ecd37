"""Every way in which an upstream breaks off or lies, through the running gateway.

The caller gets the right error, the generation is closed and booked, nothing is sent twice, and the
next request is fine; over plain connections and over TLS.
"""

import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import trustme

from tests.faults.raw_client import Answer, chat, post_chat
from tests.faults.stream_assertions import assert_bad_gateway, assert_error_ending, assert_legal
from tests.support.providers import chat_renderer
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import RawServer, say
from tests.support.providers.stub_reply import Said, Used
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_faults import FAULTS, Fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED = {"model": "hello", "stream_options": {"include_usage": True}}
HELLO = Said(ASKED, Used(1, 2), "hello")
CONFIG = """
upstream: {{cool_down_seconds: 0.001}}
providers:
  - slug: faulty
    name: Cutter
    kind: openai_compatible
    base_url: {url}v1
  - slug: vouched
    name: Cutter
    kind: openai_compatible
    base_url: {url}v1
    idempotent: true
  - slug: steady
    kind: simulated
models:
  - id: faulty/model
    context_length: 8192
    endpoints:
      - {{provider: faulty, model: m, pricing: {{prompt: "0.000001", completion: "0.000002"}}}}
      - {{provider: faulty, model: m, pricing: {{prompt: "0.000001", completion: "0.000002"}}}}
  - id: faulty/backed
    context_length: 8192
    endpoints:
      - {{provider: faulty, model: m, pricing: free}}
      - {{provider: steady, model: echo, pricing: free}}
  - id: vouched/backed
    context_length: 8192
    endpoints:
      - {{provider: vouched, model: m, pricing: free}}
      - {{provider: steady, model: echo, pricing: free}}
"""
AMBIGUOUS = "tollhouse_upstream_ambiguous_sends_total"


@dataclass
class Setup:
    gateway: ServerProcess
    upstream: RawServer

    async def ask(self, model: str = "faulty/model", *, streamed: bool) -> Answer:
        body = chat(model, stream=streamed)
        return await post_chat(self.gateway.base_url, self.gateway.api_key, body)

    async def get(self, url: str, **params: str) -> httpx2.Response:
        async with httpx2.AsyncClient(headers=self.gateway.authorization) as client:
            return await client.get(url, params=params)

    async def metric(self, name: str) -> float:
        text = (await self.get(f"{self.gateway.origin}/metrics")).text
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))

    async def generation(self, answer: Answer) -> dict[str, Any]:
        url = f"{self.gateway.base_url}/generation"
        return (await self.get(url, id=answer.generation_id)).json()["data"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["plain", "tls"])
async def setup(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Setup]:
    folder = tmp_path_factory.mktemp("upstream-faults")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = {"SSL_CERT_FILE": str(folder / "ca.pem")}
    async with RawServer(ssl_context=context) as upstream:
        config = CONFIG.format(url=upstream.url)
        with start_server(folder, config=config, env=trusted) as gateway:
            yield Setup(gateway, upstream)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_fault_is_an_error_that_is_booked_and_not_retried(
    setup: Setup, fault: Fault, *, streamed: bool
) -> None:
    requests, ambiguous = setup.upstream.requests, await setup.metric(AMBIGUOUS)
    setup.upstream.behave = fault.behave
    answer = await setup.ask(streamed=streamed)
    if streamed and answer.status == 200:
        assert_error_ending(answer)
    else:
        assert_bad_gateway(answer)
        assert await setup.metric(AMBIGUOUS) in {ambiguous, ambiguous + 1}
    assert setup.upstream.requests == requests + 1, "it was sent again, to the other endpoint"
    assert (await setup.generation(answer))["finish_reason"] == "error"
    await is_well(setup)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_ambiguous_failure_of_an_idempotent_provider_falls_back(
    setup: Setup, *, streamed: bool
) -> None:
    requests, ambiguous = setup.upstream.requests, await setup.metric(AMBIGUOUS)
    setup.upstream.behave = say(End.RST)
    answer = await setup.ask("vouched/backed", streamed=streamed)
    assert answer.status == 200
    assert (await setup.generation(answer))["provider_name"] == "steady"
    assert setup.upstream.requests == requests + 1
    assert await setup.metric(AMBIGUOUS) == ambiguous + 1


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_ambiguous_failure_does_not_fall_back(setup: Setup, *, streamed: bool) -> None:
    requests, ambiguous = setup.upstream.requests, await setup.metric(AMBIGUOUS)
    setup.upstream.behave = say(End.RST)
    answer = await setup.ask("faulty/backed", streamed=streamed)
    assert_bad_gateway(answer)
    assert (await setup.generation(answer))["provider_name"] == "Cutter"
    assert setup.upstream.requests == requests + 1
    assert await setup.metric(AMBIGUOUS) == ambiguous + 1


async def is_well(setup: Setup) -> None:
    assert await setup.metric("tollhouse_generations_in_flight") == 0
    setup.upstream.behave = say(chat_renderer.framing.whole(200, chat_renderer.whole(HELLO)))
    answer = await setup.ask(streamed=False)
    assert answer.json["choices"][0]["message"]["content"] == "hello"
    setup.upstream.behave = say(*chat_renderer.framing.stream(chat_renderer.events(HELLO)))
    assert "usage" in assert_legal(await setup.ask(streamed=True))
