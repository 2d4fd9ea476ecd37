"""Streams that arrive in other pieces each time, from any dialect to any format: always the same.

Every stream is legal, ends with its terminal event, and says, counts and costs what the whole reply
does. A failure names its seed; `RECHUNK_SEED=<seed>` draws that one alone.
"""

import asyncio
import json
import os
import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from tests.faults.rechunked_provider import CALLS, DIALECTS, REPLIES, TEXT, THOUGHT, answer
from tests.support.format_clients import (
    Chat,
    Completions,
    FormatClient,
    Messages,
    Responses,
    TextRequest,
)
from tests.support.providers.upstream_server import serve
from tests.support.server_process import ServerProcess, start_server
from tests.support.stream_checks.chat import check_stream as checked_chat
from tests.support.stream_checks.completions import check_stream as checked_completions
from tests.support.stream_checks.messages import check_stream as checked_messages
from tests.support.stream_checks.responses import check_stream as checked_response

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAMS_IN_TEST, STREAMS_IN_SOAK = 4, 20
AT_ONCE = 10
FORMS: dict[str, FormatClient] = {
    form.path: form for form in (Chat(), Responses(), Messages(), Completions())
}
PRICES = {
    "prompt": "0.000003",
    "completion": "0.000015",
    "input_cache_read": "0.0000003",
    "input_cache_write": "0.00000375",
    "input_cache_write_1h": "0.000006",
    "request": "0.0001",
}
TIMES = {"created", "created_at", "completed_at"}
BOOKED = (
    "total_cost",
    "upstream_inference_cost",
    "cost_state",
    "tokens_prompt",
    "tokens_completion",
    "native_tokens_reasoning",
    "native_tokens_cached",
    "finish_reason",
    "native_finish_reason",
    "cancelled",
)


@dataclass
class GatewayFixture:
    """A gateway before a provider of each dialect."""

    server: ServerProcess
    client: httpx2.AsyncClient
    asked: dict[tuple[str, str, bool], httpx2.Response] = field(default_factory=dict)

    async def ask(
        self, form: FormatClient, model: str, seed: int, *, stream: bool
    ) -> httpx2.Response:
        request = TextRequest(text=f"seed {seed}", tools=("look", "find"), thinks=True)
        body = {**form.fields(model, request), "stream": stream}
        reply = await self.client.post(f"{self.server.base_url}{form.path}", json=body)
        assert reply.status_code == 200, reply.text
        return reply

    async def uncut(self, form: FormatClient, model: str, *, stream: bool) -> httpx2.Response:
        """Return the reply that all others must equal; it is asked for once."""
        key = (form.path, model, stream)
        if key not in self.asked:
            self.asked[key] = await self.ask(form, model, 0, stream=stream)
        return self.asked[key]

    async def booked(self, reply: httpx2.Response) -> dict[str, Any]:
        found = await self.client.get(
            f"{self.server.base_url}/generation", params={"id": reply.headers["x-generation-id"]}
        )
        generation = found.json()["data"]
        return {name: generation[name] for name in BOOKED}


def config(port: int) -> str:
    """Return the configuration of a gateway before the provider."""
    url = f"http://127.0.0.1:{port}/v1"
    openai = {"kind": "openai_compatible", "base_url": url}
    providers = [
        {"slug": "chat", "dialects": ["chat"], **openai},
        {"slug": "responses", "dialects": ["responses"], **openai},
        {"slug": "messages", "kind": "anthropic", "base_url": url, "api_key": "sk-ant-1"},
    ]
    models = [
        {
            "id": f"{dialect}/{name}",
            "context_length": 8192,
            "endpoints": [{"provider": dialect, "model": name, "pricing": PRICES}],
        }
        for dialect in DIALECTS
        for name in REPLIES
    ]
    return json.dumps({"providers": providers, "models": models})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway_fixture(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[GatewayFixture]:
    async with serve(answer) as (port, _):
        folder = tmp_path_factory.mktemp("rechunking")
        server = await asyncio.to_thread(start_server, folder, config=config(port))
        options: Any = {"headers": server.authorization, "timeout": 30}
        with server:
            async with httpx2.AsyncClient(**options) as client:
                yield GatewayFixture(server, client)


def seeds(number: int) -> list[int]:
    given = os.environ.get("RECHUNK_SEED")
    return [int(given)] if given else [random.getrandbits(32) for _ in range(number)]


def usage_of(path: str, stream: bytes) -> dict[str, Any]:
    """Return the usage at the end of a stream; the stream is legal and did not fail."""
    if path == "/messages":
        seen = checked_messages(stream)
        assert seen.error is None
        assert seen.last is not None
        return seen.last["usage"]
    if path == "/responses":
        response = checked_response(stream)
        assert not response.failed
        return response.response["usage"]
    ended = checked_chat(stream) if path == "/chat/completions" else checked_completions(stream)
    assert not ended.failed
    return ended.last["usage"]


def counted(usage: dict[str, Any]) -> dict[str, Any]:
    """Return a usage without the tier that served, which a translated stream does not tell."""
    return {name: value for name, value in usage.items() if name != "service_tier"}


def events_of(reply: httpx2.Response) -> list[Any]:
    """Return a stream's events without what every reply has of its own: its id and its time.

    Nor with the estimate of the input, which goes by the size of the request.
    """

    def timeless(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in fields.items() if name not in TIMES}

    text = reply.text.replace(reply.headers["x-generation-id"], "gen-1")
    data = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    events = [json.loads(each, object_hook=timeless) for each in data if each != "[DONE]"]
    for event in events:
        if event.get("type") == "message_start":
            assert event["message"]["usage"].pop("input_tokens") > 0
    return events


async def expect_the_whole_reply(
    gateway_fixture: GatewayFixture, form: FormatClient, model: str, seed: int
) -> None:
    whole = await gateway_fixture.uncut(form, model, stream=False)
    uncut = await gateway_fixture.uncut(form, model, stream=True)
    stream = await gateway_fixture.ask(form, model, seed, stream=True)
    try:
        assert counted(usage_of(form.path, stream.content)) == counted(whole.json()["usage"])
        assert form.streamed(stream.content) == form.whole(whole.content)
        assert events_of(stream) == events_of(uncut)
        assert await gateway_fixture.booked(stream) == await gateway_fixture.booked(whole)
    except (AssertionError, ValueError, LookupError) as error:
        error.add_note(f"{form.path} from {model}: RECHUNK_SEED={seed}\n{stream.text}")
        raise


async def expect_all(gateway_fixture: GatewayFixture, path: str, dialect: str, number: int) -> None:
    form, gate = FORMS[path], asyncio.Semaphore(AT_ONCE)

    async def expect(model: str, seed: int) -> None:
        async with gate:
            await expect_the_whole_reply(gateway_fixture, form, model, seed)

    models = [f"{dialect}/{name}" for name in REPLIES]
    for model in models:
        await expect(model, 0)
    await asyncio.gather(*(expect(model, seed) for seed in seeds(number) for model in models))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", FORMS)
async def test_the_whole_reply_says_counts_and_costs_something(
    gateway_fixture: GatewayFixture, path: str, dialect: str
) -> None:
    form = FORMS[path]
    spoken, called = [
        await gateway_fixture.uncut(form, f"{dialect}/{name}", stream=False) for name in REPLIES[:2]
    ]

    assert form.whole(spoken.content).text == TEXT
    if path != "/completions":
        assert form.whole(spoken.content).thought == THOUGHT
        assert form.whole(called.content).calls == tuple(CALLS)
    booked = await gateway_fixture.booked(spoken)
    assert booked["total_cost"] == spoken.json()["usage"]["cost"] > 0.005
    assert booked["native_tokens_cached"] == 1920
    assert booked["native_tokens_reasoning"] == 256


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", FORMS)
async def test_a_stream_in_any_pieces_is_the_whole_reply(
    gateway_fixture: GatewayFixture, path: str, dialect: str
) -> None:
    await expect_all(gateway_fixture, path, dialect, STREAMS_IN_TEST)


@pytest.mark.soak
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", FORMS)
async def test_many_streams_in_any_pieces_are_the_whole_reply(
    gateway_fixture: GatewayFixture, soak_factor: int, path: str, dialect: str
) -> None:
    await expect_all(gateway_fixture, path, dialect, STREAMS_IN_SOAK * soak_factor)
