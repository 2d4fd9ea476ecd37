from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.stream_checks.chat import check_stream
from tests.unit.api.asgi_client import Client, scope
from tests.unit.inference.fakes import (
    SUBJECT,
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    steps,
    stream_reply,
    whole_reply,
)
from tollhouse.accounting.types import Attribution
from tollhouse.api.hot_routes import Inference, LargeBodies, attribution
from tollhouse.identity.access import set_caller
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.reply_buffer import HIGH_WATER
from tollhouse.inference.steps import Steps
from tollhouse.kernel.errors import (
    Invalid,
    NotFound,
    PayloadTooLarge,
    ProviderUnavailable,
    TollhouseError,
)
from tollhouse.settings.sections import ServerSettings

SETTINGS = ServerSettings(body_limit_bytes=10_000, keep_alive_seconds=0.05)


def request(w: PipelineFixture, client: Client, **fields: Any) -> asyncio.Task[None]:
    body = {"model": "acme/large", "messages": [{"role": "user", "content": "hi"}]} | fields
    client.body = json.dumps(body).encode()
    inner = client.scope = scope("POST", "/v1/chat/completions")
    set_caller(inner, SUBJECT)
    large = LargeBodies.of(SETTINGS, Steps())
    route = Inference(FORMATS["/chat/completions"], w.pipeline, w.clock, SETTINGS, large)
    return asyncio.ensure_future(route(inner, dict(inner["headers"]), client.receive, client.send))


async def test_a_whole_reply_is_sent_with_its_length_and_id() -> None:
    w, client = PipelineFixture([FakeProvider(whole_reply())]), Client()
    await request(w, client)
    answer = client.answer
    assert (answer.status, answer.whole) == (200, True)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert answer.headers["x-generation-id"] == answer.json()["id"] == w.settler.booked[0].id


async def test_a_stream_is_sent_as_an_event_stream_with_its_id() -> None:
    w, client = PipelineFixture([FakeProvider(stream_reply())]), Client()
    await request(w, client, stream=True)
    answer = client.answer
    assert (answer.status, answer.whole) == (200, True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    assert answer.headers["x-generation-id"] == check_stream(answer.body).last["id"]


async def test_a_stream_is_sent_piece_by_piece() -> None:
    reply = stream_reply()
    reply.body.insert(1, rest := asyncio.Event())
    w, client = PipelineFixture([FakeProvider(reply)]), Client()
    task = request(w, client, stream=True)
    await steps()
    assert len(client.answer.messages) == 2
    assert not client.answer.whole
    rest.set()
    await task
    assert not check_stream(client.answer.body).failed


async def test_a_stream_that_breaks_is_sent_to_its_legal_end() -> None:
    cut = ProviderUnavailable("cut", provider_name="Acme", ambiguous=True)
    reply = stream_reply()
    w, client = PipelineFixture([FakeProvider(FakeReply([*reply.body[:2], cut]))]), Client()
    await request(w, client, stream=True)
    assert check_stream(client.answer.body).failed
    assert client.answer.whole


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"model": "acme/small"}, NotFound),
        ({"model": ""}, Invalid),
        ({"messages": []}, Invalid),
        ({"x": "x" * 10_000}, PayloadTooLarge),
    ],
)
async def test_a_refused_request_sends_nothing(
    fields: dict[str, Any], refusal: type[TollhouseError]
) -> None:
    w, client = PipelineFixture([FakeProvider(whole_reply())]), Client()
    with pytest.raises(refusal):
        await request(w, client, **fields)
    assert client.answer.messages == []
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_byte_is_left_to_the_front(stream: bool) -> None:  # noqa: FBT001
    failure = ProviderUnavailable("x", provider_name="Acme")
    w, client = PipelineFixture([FakeProvider(failure)]), Client()
    with pytest.raises(ProviderUnavailable):
        await request(w, client, stream=stream)
    assert client.answer.messages == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_cancels_its_call(stream: bool) -> None:  # noqa: FBT001
    reply = stream_reply() if stream else whole_reply()
    reply.body.insert(1 if stream else 0, asyncio.Event())
    w, client = PipelineFixture([FakeProvider(reply)]), Client()
    task = request(w, client, stream=stream)
    await steps()
    client.leave()
    await task
    await steps()
    assert (reply.closed, len(w.settler.booked), w.in_flight) == (1, 1, 0)
    assert w.settler.booked[0].cancelled


async def test_a_server_that_gives_the_request_up_cancels_the_call() -> None:
    reply = stream_reply()
    reply.body.insert(1, asyncio.Event())
    w, client = PipelineFixture([FakeProvider(reply)]), Client()
    task = request(w, client, stream=True)
    await steps()
    task.cancel()
    await steps()
    assert (reply.closed, len(w.settler.booked), w.in_flight) == (1, 1, 0)


async def test_a_connection_that_fails_while_sending_cancels_the_call() -> None:
    class Broken(Client):
        async def send(self, message: dict[str, Any]) -> None:
            raise OSError(message["type"])

    reply = stream_reply()
    reply.body.insert(1, asyncio.Event())
    w, client = PipelineFixture([FakeProvider(reply)]), Broken()
    with pytest.raises(OSError, match=r"http\.response\.start"):
        await request(w, client, stream=True)
    await steps()
    assert (reply.closed, len(w.settler.booked), w.in_flight) == (1, 1, 0)


async def test_a_client_that_does_not_read_stops_the_provider() -> None:
    class Slow(Client):
        async def send(self, message: dict[str, Any]) -> None:
            await super().send(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

    event = stream_reply().body[1]
    assert isinstance(event, bytes)
    reply = FakeReply([event] * (3 * HIGH_WATER // len(event)))
    w, client = PipelineFixture([FakeProvider(reply)]), Slow()
    task = request(w, client, stream=True)
    for _ in range(100):
        await steps()
    sent_on = sum(len(piece) for piece in reply.read if isinstance(piece, bytes))
    assert sent_on < 2.5 * HIGH_WATER
    task.cancel()
    await steps()
    assert len(w.settler.booked) == 1


async def test_nothing_is_left_running_after_a_reply() -> None:
    w, client = PipelineFixture([FakeProvider(whole_reply())]), Client()
    before = asyncio.all_tasks()
    await request(w, client)
    await steps()
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("stream", [False, True])
async def test_the_last_bytes_wait_for_the_books(stream: bool) -> None:  # noqa: FBT001
    books = FakeSettler(ready=(ready := asyncio.Event()))
    w = PipelineFixture([FakeProvider(stream_reply() if stream else whole_reply())], books)
    client = Client()
    task = request(w, client, stream=stream)
    await steps()
    assert not client.answer.whole
    assert b"[DONE]" not in client.answer.body
    ready.set()
    await task
    assert client.answer.whole


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, Attribution()),
        ({b"http-referer": b"https://a.example"}, Attribution(http_referer="https://a.example")),
        ({b"referer": b"https://a.example"}, Attribution(http_referer="https://a.example")),
        (
            {b"referer": b"https://b.example", b"http-referer": b"https://a.example"},
            Attribution(http_referer="https://a.example"),
        ),
        ({b"x-title": b"App"}, Attribution(app_title="App")),
        ({b"x-title": b"b", b"x-openrouter-title": b"a"}, Attribution(app_title="a")),
        ({b"user-agent": b"curl/8"}, Attribution(user_agent="curl/8")),
        ({b"x-session-id": b"s"}, Attribution(session_id="s")),
        ({b"user-agent": b"\xff\x00"}, Attribution(user_agent="\N{REPLACEMENT CHARACTER}")),
        ({b"user-agent": b"x" * 5000}, Attribution(user_agent="x" * 512)),
    ],
)
def test_headers_say_which_program_called(headers: dict[bytes, bytes], said: Attribution) -> None:
    assert attribution(headers) == said
