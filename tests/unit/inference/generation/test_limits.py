"""What a refusal of admission does to a request, and a rate limit in the middle of a stream."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.support.clock import START
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference.fakes import (
    MODEL,
    FakeAdmission,
    FakeProvider,
    FakeReply,
    PipelineFixture,
    failed,
    received,
    stream_reply,
    whole_reply,
)
from tollhouse.kernel.errors import (
    PaymentRequired,
    ProviderRateLimited,
    RateLimited,
    RateWindow,
    TollhouseError,
    Unavailable,
)

WINDOW = RateWindow(20, 0, START + timedelta(seconds=60))
LIMITED = RateLimited("Too often.", window=WINDOW, metadata={"error_type": "rate_limit_exceeded"})
SLOW_DOWN = b'data: {"error":{"code":429,"message":"Slow down."}}\n\n'


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "refusal", [PaymentRequired("No credits."), LIMITED, Unavailable("The disk is full.")]
)
async def test_what_is_refused_reaches_no_provider_and_is_not_booked(
    refusal: TollhouseError, *, stream: bool
) -> None:
    w = PipelineFixture([FakeProvider(whole_reply())], admission=FakeAdmission(refusal))
    assert await failed(w.begin(stream=stream)) is refusal
    [provider] = w.providers
    assert provider.calls == []
    assert w.settler.records == []
    assert not w.admission.holding


async def chunk_of(w: PipelineFixture) -> dict[str, Any]:
    """Return the chunk that ended a stream."""
    seen = check_stream(await received(w.begin(stream=True)))
    assert seen.failed
    return seen.last


async def test_a_rate_limit_in_mid_stream_is_a_chunk_with_its_code() -> None:
    reply = FakeReply([*stream_reply().body[:2], SLOW_DOWN])
    last = await chunk_of(PipelineFixture([FakeProvider(reply)]))
    assert set(last) == {"id", "object", "created", "model", "provider", "error", "choices"}
    assert (last["object"], last["model"]) == ("chat.completion.chunk", MODEL)
    assert last["error"]["code"] == 429
    assert last["error"]["metadata"]["error_type"] == "rate_limit_exceeded"
    assert [choice["finish_reason"] for choice in last["choices"]] == ["error"]


async def test_a_rate_limit_after_a_comment_is_a_chunk_with_its_code() -> None:
    accepts = asyncio.Event()
    limited = ProviderRateLimited("Slow down.", provider_name="Acme", retry_after=3)
    w = PipelineFixture([FakeProvider(limited, accepts=accepts)])
    exchange = w.begin(stream=True)
    exchange.keep_alive(0.001, b": beat\n\n")
    assert (await exchange.read()).startswith(b": beat")
    accepts.set()
    last = check_stream((await received(exchange)).replace(b": beat\n\n", b"")).last
    assert last["error"]["code"] == 429
    assert [choice["finish_reason"] for choice in last["choices"]] == ["error"]
