"""A provider of any dialect that cuts its stream or spoils it, seen by a client of any format."""

import asyncio
import json
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server
from tests.support.stream_checks.chat import check_stream as checked_chat
from tests.support.stream_checks.completions import check_stream as checked_completions
from tests.support.stream_checks.messages import check_stream as checked_messages
from tests.support.stream_checks.responses import check_stream as checked_response
from tests.support.upstream_process import UpstreamProcess

DIALECTS = ("chat", "responses", "messages")
WAYS = ("eof", "short", "rst")
CUTS_IN_TEST, CUTS_IN_SOAK = 10, 50
AT_ONCE = 20
TEXT = "one two three four five"
SAID = [{"role": "user", "content": TEXT}]
ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": SAID},
    "responses": {"input": TEXT},
    "messages": {"messages": SAID, "max_tokens": 1000},
    "completions": {"prompt": TEXT},
}
"""Path of each client format -> its request."""
SPOILED = {
    "garbage": "refused",
    "html-502": "refused",
    "status:500": "refused",
    "error-in-stream": "failed",
    "crlf": "complete",
    "comments": "complete",
    "drip:0": "complete",
}
SPOILED_ITS_OWN_WAY = {
    "chat": {"no-finish": "failed", "no-done": "complete", "duplicate-done": "complete"},
    "responses": {"no-done": "failed"},
    "messages": {"no-stop": "complete", "overloaded": "refused", "ping": "complete"},
}
"""Dialect -> what its provider does to a stream -> what becomes of it."""
EARLY_CUTS = [f"cut:{size}:{how}" for size in (0, 100, 200) for how in WAYS]
"""In a whole reply, which is longer in every dialect."""
FAULTS = [
    (dialect, fault, end)
    for dialect in DIALECTS
    for fault, end in (SPOILED | SPOILED_ITS_OWN_WAY[dialect]).items()
]


REFUSALS = {502, 503, "api_error", "overloaded_error"}


class Seen(NamedTuple):
    """The content of a legal stream."""

    text: str
    failed: bool


def chat(stream: bytes) -> Seen:
    seen = checked_chat(stream)
    return Seen(seen.text, seen.failed)


def messages(stream: bytes) -> Seen:
    seen = checked_messages(stream)
    return Seen(seen.text, seen.error is not None)


def responses(stream: bytes) -> Seen:
    seen = checked_response(stream)
    text = "".join(
        event["delta"] for event in seen.events if event["type"] == "response.output_text.delta"
    )
    return Seen(text, seen.failed)


def completions(stream: bytes) -> Seen:
    seen = checked_completions(stream)
    return Seen(seen.text, seen.failed)


LEGAL: dict[str, Callable[[bytes], Seen]] = {
    "chat/completions": chat,
    "responses": responses,
    "messages": messages,
    "completions": completions,
}


# -------------------------------------------------------------------------------- the gateway


def length_of(upstream: UpstreamProcess, dialect: str) -> int:
    """Return how many bytes a provider's whole stream has."""
    path = "chat/completions" if dialect == "chat" else dialect
    reply = httpx2.post(
        f"{upstream.origin}/v1/{path}",
        json={"model": "echo", "stream": True, **ASKED[path]},
        headers={"x-api-key": "any", "anthropic-version": "2023-06-01"},
    )
    assert reply.status_code == 200
    return len(reply.content)


def cuts(dialect: str, how: str, length: int, number: int) -> list[str]:
    """Return the names of models that cut at random places."""
    chosen = random.Random(f"{dialect} {how}")
    return [f"cut:{chosen.randrange(length)}:{how}" for _ in range(number)]


def config(origin: str, models: dict[str, list[str]]) -> str:
    """Return the configuration of a gateway before a provider of each dialect."""
    url = f"{origin}/v1"
    openai = {"kind": "openai_compatible", "base_url": url}
    providers = [
        {"slug": "chat", "dialects": ["chat"], **openai},
        {"slug": "responses", "dialects": ["responses"], **openai},
        {"slug": "messages", "kind": "anthropic", "base_url": url, "api_key": "sk-ant-1"},
    ]
    listed = [
        {
            "id": f"{dialect}/{model}",
            "context_length": 8192,
            "endpoints": [{"provider": dialect, "model": model, "pricing": "free"}],
        }
        for dialect, names in models.items()
        for model in dict.fromkeys(names)
    ]
    return json.dumps({"providers": providers, "models": listed})


class GatewayFixture:
    """A gateway with models that cut, for each dialect and kind of cut."""

    def __init__(self, server: ServerProcess, models: dict[tuple[str, str], list[str]]) -> None:
        self.server = server
        self.models = models


@contextmanager
def start_gateway(
    upstream: UpstreamProcess, factory: pytest.TempPathFactory, number: int
) -> Generator[GatewayFixture]:
    models = {
        (dialect, how): cuts(dialect, how, length, number)
        for dialect, length in {each: length_of(upstream, each) for each in DIALECTS}.items()
        for how in WAYS
    }
    listed = {
        dialect: [
            *("echo", *SPOILED, *SPOILED_ITS_OWN_WAY[dialect], *EARLY_CUTS),
            *(name for how in WAYS for name in models[dialect, how]),
        ]
        for dialect in DIALECTS
    }
    folder = factory.mktemp("format-cuts")
    with start_server(folder, config=config(upstream.origin, listed)) as server:
        yield GatewayFixture(server, models)


@pytest.fixture(scope="module")
def gateway_fixture(
    upstream: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[GatewayFixture]:
    with start_gateway(upstream, tmp_path_factory, CUTS_IN_TEST) as running:
        yield running


@pytest.fixture(scope="module")
def big_gateway_fixture(
    upstream: UpstreamProcess, tmp_path_factory: pytest.TempPathFactory
) -> Generator[GatewayFixture]:
    with start_gateway(upstream, tmp_path_factory, CUTS_IN_SOAK) as running:
        yield running


# -------------------------------------------------------------------------------------- asking


async def ask_all(
    server: ServerProcess, path: str, models: list[str], *, stream: bool = True
) -> list[httpx2.Response]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def ask(model: str) -> httpx2.Response:
        body = {"model": model, "stream": stream, **ASKED[path]}
        async with gate:
            return await client.post(f"{server.base_url}/{path}", json=body)

    options: Any = {"headers": server.authorization, "timeout": 30}
    async with httpx2.AsyncClient(**options) as client:
        return await asyncio.gather(*map(ask, models))


def how_it_ended(path: str, reply: httpx2.Response) -> str:
    """Assert that a reply is legal; return whether it is refused, failed or complete."""
    if reply.status_code != 200:
        assert reply.status_code in {502, 503}
        error = reply.json()["error"]
        assert error["type" if path == "messages" else "code"] in REFUSALS
        return "refused"
    seen = LEGAL[path](reply.content)
    assert TEXT.startswith(seen.text)
    assert seen.failed or seen.text == TEXT
    return "failed" if seen.failed else "complete"


async def expect_legal_ends(
    gateway_fixture: GatewayFixture, path: str, dialect: str, how: str
) -> None:
    names = gateway_fixture.models[dialect, how]
    replies = await ask_all(gateway_fixture.server, path, [f"{dialect}/{name}" for name in names])
    ends: list[str] = []
    for name, reply in zip(names, replies, strict=True):
        try:
            ends.append(how_it_ended(path, reply))
        except AssertionError as error:
            error.add_note(f"{name}: {reply.status_code} {reply.text}")
            raise
    assert "failed" in ends, "no cut was in mid-stream"


# --------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", ASKED)
async def test_a_stream_that_is_not_cut_is_complete(
    gateway_fixture: GatewayFixture, path: str, dialect: str
) -> None:
    (reply,) = await ask_all(gateway_fixture.server, path, [f"{dialect}/echo"])
    assert how_it_ended(path, reply) == "complete"


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", ASKED)
async def test_a_cut_stream_ends_legally_with_an_error(
    gateway_fixture: GatewayFixture, path: str, dialect: str, how: str
) -> None:
    await expect_legal_ends(gateway_fixture, path, dialect, how)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", ASKED)
async def test_a_whole_reply_that_is_cut_is_a_502(
    gateway_fixture: GatewayFixture, path: str, dialect: str
) -> None:
    models = [f"{dialect}/{name}" for name in EARLY_CUTS]
    replies = await ask_all(gateway_fixture.server, path, models, stream=False)
    assert {reply.status_code for reply in replies} == {502}


@pytest.mark.parametrize(("dialect", "fault", "end"), FAULTS)
@pytest.mark.parametrize("path", ASKED)
async def test_a_spoiled_stream_ends_legally(
    gateway_fixture: GatewayFixture, path: str, dialect: str, fault: str, end: str
) -> None:
    (reply,) = await ask_all(gateway_fixture.server, path, [f"{dialect}/{fault}"])
    assert how_it_ended(path, reply) == end


@pytest.mark.soak
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("path", ASKED)
async def test_100_cut_streams_end_legally_with_an_error(
    big_gateway_fixture: GatewayFixture, path: str, dialect: str, how: str
) -> None:
    await expect_legal_ends(big_gateway_fixture, path, dialect, how)
