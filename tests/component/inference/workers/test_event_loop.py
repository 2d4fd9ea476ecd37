"""How long one step on the event loop takes while a large request is served: never long.

What counts is the CPU time of the loop's own thread in one callback, so a busy machine changes
nothing.
"""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.support.ids import SequentialIds
from tests.support.seams.api import Inference, LargeBodies
from tests.support.seams.batches import (
    ChunkLease,
    ConcurrencyLimiters,
    InferenceClient,
    LeasedChunk,
    RequestDriver,
    StoredChunk,
    item_line,
)
from tests.support.seams.identity import AccessPolicy, set_caller
from tests.support.seams.inference import FORMATS, Dialect, Pipeline, Steps, WorkerPool
from tests.unit.api.asgi_client import Client, scope
from tests.unit.batches.driver_fixture import FakeChunkStore, FakeSubjects
from tests.unit.inference.fakes import SUBJECT, FakeProvider, FakeReply, PipelineFixture
from tollhouse.settings.sections import ServerSettings

pytestmark = pytest.mark.asyncio(loop_scope="module")
MOST_SECONDS = 0.025
TRIES = 3
CALLER = replace(SUBJECT, policies=(AccessPolicy("key", patterns=("never said",)),))
SETTINGS = ServerSettings()
TURNS = [
    {"role": role, "content": f"what {number} says is not long"}
    for number in range(6_000)
    for role in ("user", "assistant")
]
REQUESTS: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": TURNS},
    "/responses": {"input": TURNS},
    "/messages": {"messages": TURNS, "max_tokens": 9},
    "/completions": {"prompt": "a long text " * 400_000},
    "/embeddings": {"input": [[17] * 500] * 2_000},
}
TEXT = "a long reply " * 100_000
USED = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
CHAT = {
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
    ]
}
SAID: dict[str, Any] = {
    "type": "message",
    "role": "assistant",
    "id": "m",
    "status": "completed",
    "content": [{"type": "output_text", "text": TEXT, "annotations": []}],
}
REPLIES: dict[Dialect, dict[str, Any]] = {
    Dialect.CHAT: {"id": "x", "object": "chat.completion", "usage": USED, **CHAT},
    Dialect.RESPONSES: {
        "id": "x",
        "object": "response",
        "status": "completed",
        "output": [SAID],
        "usage": {"input_tokens": 9, "output_tokens": 9},
    },
    Dialect.MESSAGES: {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 9},
    },
    Dialect.COMPLETIONS: {
        "id": "x",
        "choices": [{"index": 0, "text": TEXT, "finish_reason": "stop"}],
        "usage": USED,
    },
    Dialect.EMBEDDINGS: {"data": [{"index": 0, "embedding": [0.25] * 100_000}], "usage": USED},
}
CHUNKS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USED},
]
STREAM = b"".join(b"data: %b\n\n" % json.dumps({"id": "x", **each}).encode() for each in CHUNKS)
STREAM += b"data: [DONE]\n\n"
OWN = {
    "/chat/completions": Dialect.CHAT,
    "/responses": Dialect.RESPONSES,
    "/messages": Dialect.MESSAGES,
    "/completions": Dialect.COMPLETIONS,
    "/embeddings": Dialect.EMBEDDINGS,
}
WHOLE = [(path, own, False) for path, own in OWN.items()]
TRANSLATED = [("/messages", Dialect.CHAT, False)]
STREAMED = [(path, Dialect.CHAT, True) for path in ("/chat/completions", "/responses", "/messages")]


LARGE_CHUNKS = [
    {"choices": [{"index": 0, "delta": {"content": "a long text " * 300_000}}]},
    *CHUNKS[1:],
]
LARGE_STREAM = b"".join(
    b"data: %b\n\n" % json.dumps({"id": "x", **each}).encode() for each in LARGE_CHUNKS
)
LARGE_STREAM += b"data: [DONE]\n\n"
TOOLS = [{"type": "function", "name": f"tool_{at}", "parameters": {}} for at in range(60_000)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steps() -> AsyncIterator[Steps]:
    made = Steps(WorkerPool(1))
    yield made
    await made.close()


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of CPU that the loop's thread spent in each callback; no collection among them."""
    taken: list[float] = []
    run: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # noqa: SLF001 - there is no other way in

    def timed(self: asyncio.Handle) -> None:
        before = time.thread_time()
        run(self)
        taken.append(time.thread_time() - before)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    return taken


@pytest.mark.parametrize(("path", "dialect", "stream"), [*WHOLE, TRANSLATED[0], STREAMED[2]])
async def test_no_step_of_a_large_request_holds_up_the_loop(
    steps: Steps, longest: list[float], path: str, dialect: Dialect, *, stream: bool
) -> None:
    reply = STREAM if stream else json.dumps(REPLIES[dialect]).encode()
    body = {"model": "acme/large", "stream": stream, **REQUESTS[path]}
    assert await longest_step(steps, longest, path, dialect, body, reply) < MOST_SECONDS


@pytest.mark.parametrize(("path", "dialect", "stream"), STREAMED[:2])
async def test_no_large_event_of_a_stream_holds_up_the_loop(
    steps: Steps, longest: list[float], path: str, dialect: Dialect, *, stream: bool
) -> None:
    small = {"input": "hi"} if path == "/responses" else {"messages": TURNS[:1], "prompt": "hi"}
    body = {"model": "acme/large", "stream": stream, "max_tokens": 9, **small}
    assert await longest_step(steps, longest, path, dialect, body, LARGE_STREAM) < MOST_SECONDS


async def test_tools_that_a_streamed_response_repeats_do_not_hold_up_the_loop(
    steps: Steps, longest: list[float]
) -> None:
    body = {"model": "acme/large", "stream": True, "input": "hi", "dependencies": TOOLS}
    taken = await longest_step(steps, longest, "/responses", Dialect.CHAT, body, STREAM)
    assert taken < MOST_SECONDS


async def test_no_step_of_a_large_item_of_a_batch_holds_up_the_loop(
    steps: Steps, longest: list[float]
) -> None:
    taken = [await longest_step_of_an_item(steps, longest, Dialect.CHAT) for _ in range(TRIES)]
    assert min(taken) < MOST_SECONDS


async def longest_step_of_an_item(steps: Steps, longest: list[float], dialect: Dialect) -> float:
    """Run a batch of one large item; return the seconds of the longest step."""
    reply = json.dumps(REPLIES[dialect]).encode()
    fixture = PipelineFixture([FakeProvider(FakeReply([reply]), dialects=frozenset({dialect}))])
    services = replace(fixture.services, steps=steps)
    client = InferenceClient(fixture.catalog, services, SequentialIds())
    books = FakeChunkStore(
        [item_line("a", json.dumps({"messages": TURNS, "max_tokens": 9}).encode())]
    )
    books.batch = replace(books.batch, model="acme/large")
    driver = RequestDriver(
        chunks=books,  # type: ignore[arg-type]
        limiters=ConcurrencyLimiters(1, fixture.clock, lambda: False),
        client=client,
        subjects=FakeSubjects(),
        catalog=fixture.catalog,
        steps=steps,
        clock=fixture.clock,
        part_seconds=1.0,
    )
    chunk = StoredChunk(0, 0, 1)
    leased = LeasedChunk(
        books.batch, ChunkLease(books.batch.id, chunk, "token", 1, frozenset(), {})
    )
    async with watched(longest):
        await driver.run(leased)
    assert books.results[0]["response"]["status_code"] == 200
    return max(longest)


@asynccontextmanager
async def watched(longest: list[float]) -> AsyncIterator[None]:
    """Begin a step, forget those before, and leave out garbage collections: nobody's step."""
    gc.disable()
    try:
        await asyncio.sleep(0)
        longest.clear()
        yield
    finally:
        gc.enable()


async def longest_step(
    steps: Steps,
    longest: list[float],
    path: str,
    dialect: Dialect,
    body: dict[str, Any],
    reply: bytes,
) -> float:
    """Serve a request whose provider gives this reply; return the seconds of the longest step.

    Of the best of some tries: other work on the machine makes a step longer, and none shorter.
    """
    taken = [
        await longest_step_once(steps, longest, path, dialect, body, reply) for _ in range(TRIES)
    ]
    return min(taken)


async def longest_step_once(
    steps: Steps,
    longest: list[float],
    path: str,
    dialect: Dialect,
    body: dict[str, Any],
    reply: bytes,
) -> float:
    fixture = PipelineFixture([FakeProvider(FakeReply([reply]), dialects=frozenset({dialect}))])
    services = replace(fixture.services, steps=steps)
    pipeline = Pipeline(fixture.catalog, services, SequentialIds())
    route = Inference(
        FORMATS[path], pipeline, fixture.clock, SETTINGS, LargeBodies.of(SETTINGS, steps)
    )
    client = Client(body=json.dumps(body).encode())
    inner = client.scope = scope("POST", f"/v1{path}")
    set_caller(inner, CALLER)
    async with watched(longest):
        await route(inner, dict(inner["headers"]), client.receive, client.send)
    assert client.answer.status == 200
    assert client.answer.whole
    return max(longest)
