"""A large request is read by a worker, and comes out as it does here."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.support.clock import START
from tests.support.seams.accounting import FREE, Attribution, Usage, charge_for
from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    BEHAVIOURS,
    FORMATS,
    LARGE,
    Dialect,
    Endpoint,
    InferenceRequest,
    Model,
    ReplyIdentity,
    Steps,
    WorkerPool,
    demand_of,
    render_request,
    rendered_size,
)
from tests.unit.inference.fakes import SUBJECT
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import Forbidden

NOW = Now(START, 0.0)
LONG = "a long text " * (LARGE // 8)
USER = {"role": "user", "content": LONG}
FIELDS: dict[str, dict[str, Any]] = {
    "/chat/completions": {
        "messages": [USER],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    },
    "/responses": {"input": [{"role": "user", "content": LONG}], "instructions": "be brief"},
    "/messages": {"messages": [USER], "max_tokens": 9},
    "/completions": {"prompt": LONG},
    "/embeddings": {"input": [LONG]},
}
PRICE = BEHAVIOURS["echo"].price
ENDPOINT = Endpoint("acme", "large-2026", PRICE)
MODEL = Model("acme/large", "Large", "", 128_000, None, (ENDPOINT,))
IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1)
CHARGE = charge_for(Usage(1, 2), Usage(1, 2), FREE, finish_reason="stop", broken_off=False)
HERE = Steps()
TEXT = "a reply " * (LARGE // 4)
USED = Usage(input_tokens=9, output_tokens=8)
_CHAT_USED = {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}
_USED = {"input_tokens": 9, "output_tokens": 8}
_MESSAGE = {"role": "assistant", "content": TEXT}
_PART: dict[str, Any] = {"type": "output_text", "text": TEXT, "annotations": []}
_ITEM = {"type": "message", "role": "assistant", "id": "m", "status": "completed"}
REPLIES: dict[Dialect, dict[str, Any]] = {
    Dialect.CHAT: {
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _CHAT_USED,
    },
    Dialect.RESPONSES: {
        "id": "x",
        "status": "completed",
        "output": [_ITEM | {"content": [_PART]}],
        "usage": _USED,
    },
    Dialect.MESSAGES: {
        "id": "x",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": _USED,
    },
    Dialect.EMBEDDINGS: {
        "data": [{"index": 0, "embedding": [0.25] * (LARGE // 4)}],
        "usage": {"prompt_tokens": 9, "total_tokens": 9},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def steps() -> AsyncIterator[Steps]:
    made = Steps(WorkerPool(1))
    yield made
    await made.close()


def arrived(path: str, policies: tuple[AccessPolicy, ...] = (), **more: Any) -> InferenceRequest:
    body = {"model": "acme/large", **FIELDS[path], **more}
    subject = replace(SUBJECT, policies=policies)
    data = json.dumps(body).encode()
    return InferenceRequest(FORMATS[path], data, {}, b"", subject, Attribution(), NOW)


async def read(
    steps: Steps, path: str, policies: tuple[AccessPolicy, ...] = (), **more: Any
) -> InferenceRequest:
    request = arrived(path, policies, **more)
    await steps.parse(request)
    return request


async def rendered(steps: Steps, request: InferenceRequest, dialect: Dialect) -> Any:
    """Return what reads the reply, and what the provider is sent."""
    adapter = request.adapters[dialect]
    return await steps.on_content(request, render_request, adapter, ENDPOINT)


pytestmark = pytest.mark.asyncio(loop_scope="module")
PAIRS = [
    ("/chat/completions", Dialect.CHAT),
    ("/chat/completions", Dialect.MESSAGES),
    ("/responses", Dialect.RESPONSES),
    ("/messages", Dialect.MESSAGES),
    ("/completions", Dialect.CHAT),
    ("/embeddings", Dialect.EMBEDDINGS),
]


@pytest.mark.parametrize(("path", "dialect"), PAIRS)
async def test_a_large_request_is_asked_as_if_it_were_read_here(
    steps: Steps, path: str, dialect: Dialect
) -> None:
    bodies: list[bytes] = []
    for each in (HERE, steps):
        request = await read(each, path)
        told, body = await each.on_content(
            request, render_request, request.adapters[dialect], ENDPOINT
        )
        bodies.append(body)
        assert told.dialect is dialect
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(("path", "dialect"), PAIRS)
async def test_a_large_reply_is_rendered_as_if_it_were_read_here(
    steps: Steps, path: str, dialect: Dialect
) -> None:
    reply = json.dumps(REPLIES[dialect]).encode()
    shown: list[bytes] = []
    for each in (HERE, steps):
        request = await read(each, path)
        told, _ = await each.on_content(
            request, render_request, request.adapters[dialect], ENDPOINT
        )
        whole = await each.parse_response("account", told, reply, 0)
        assert whole.reported is not None
        assert whole.reported.input_tokens == USED.input_tokens
        size = rendered_size(whole)
        shown.append(await each.run_for_reply("account", size, whole.render, IDENTITY, CHARGE))
    assert shown[0] == shown[1]


async def test_a_short_reply_that_repeats_a_large_request_is_rendered_in_a_worker(
    steps: Steps,
) -> None:
    told, _ = await rendered(steps, await read(steps, "/responses"), Dialect.CHAT)
    choice = {"message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
    reply = json.dumps({"choices": [choice]}).encode()
    short = await steps.parse_response("account", told, reply, 0)
    repeating = await steps.parse_response("account", told, reply, 300_000)
    sizes = map(rendered_size, (short, repeating))
    assert [steps.is_large(size) for size in sizes] == [False, True]


async def test_a_stream_to_a_large_request_is_read_as_if_it_were_read_here(steps: Steps) -> None:
    """Calls without ids and arguments are told apart by the names of the tools."""
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in ("alpha", "beta")]
    calls = [[{"function": {"name": name, "arguments": ""}}] for name in ("alpha", "beta")]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": each}}]} for each in calls]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    shown: list[bytes] = []
    for each in (HERE, steps):
        request = await read(each, "/messages", stream=True, tools=tools)
        told, _ = await rendered(each, request, Dialect.CHAT)
        stream = told.open_stream(IDENTITY)
        shown.append(b"".join(stream.feed(json.dumps(chunk).encode()) for chunk in chunks))
    assert shown[0] == shown[1]
    assert b'"beta"' in shown[1]


async def test_what_is_left_of_a_large_request_is_without_what_is_said(steps: Steps) -> None:
    request = await read(steps, "/chat/completions", user="ada")
    here = await read(HERE, "/chat/completions", user="ada")
    assert request.demand == demand_of(here)
    assert (request.attribution, request.preferences) == (here.attribution, here.preferences)
    assert request.parsed.size == here.parsed.size
    assert request.parsed.fields == here.parsed.fields
    assert LONG.encode() not in b"".join(map(bytes, request.parsed.fields.values()))
    assert LONG.encode() in request.body


async def test_a_policy_judges_what_a_large_request_says(steps: Steps) -> None:
    policy = AccessPolicy("key", patterns=("long text",))
    with pytest.raises(Forbidden) as caught:
        await read(steps, "/chat/completions", policies=(policy,))
    assert caught.value.metadata["patterns"] == ["long text"]


async def test_a_limit_of_output_is_set_in_the_body_of_a_large_request(steps: Steps) -> None:
    bodies: list[bytes] = []
    for each in (HERE, steps):
        request = await read(each, "/chat/completions")
        await each.limit_output(request, 77)
        _, body = await rendered(each, request, Dialect.CHAT)
        bodies.append(body)
    assert bodies[0] == bodies[1]
    assert json.loads(bodies[1])["max_tokens"] == 77
