"""Pipelines over fake providers, and what those answer."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.seams.accounting import Usage, cost
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference.fakes import (
    PRICE,
    FakeProvider,
    FakeReply,
    PipelineFixture,
    stream_reply,
    whole_reply,
)
from tollhouse.kernel.errors import ProviderUnavailable

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
USAGE = Usage(input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3)
COST = cost(USAGE, PRICE).total_nano
UNREACHABLE = ProviderUnavailable("Acme cannot be reached.", provider_name="Acme")
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)


def make_pipeline(*replies_: FakeReply | BaseException, **fields: object) -> PipelineFixture:
    return PipelineFixture([FakeProvider(each) for each in replies_], **fields)  # type: ignore[arg-type]


def good_reply(*, stream: bool) -> FakeReply:
    return stream_reply() if stream else whole_reply()


def shown(reply: bytes, *, stream: bool) -> dict[str, Any]:
    """Return a whole reply, or the last chunk of a stream, which has the same fields."""
    if not stream:
        return json.loads(reply)
    seen = check_stream(reply)
    assert not seen.failed
    return seen.last


def abandoned_pipeline(
    *, stream: bool, on_disconnect: str = "cancel"
) -> tuple[PipelineFixture, FakeReply, asyncio.Event]:
    """Return a pipeline whose provider has sent half a reply, and the event for the rest."""
    reply = good_reply(stream=stream)
    reply.body.insert(2 if stream else 0, rest := asyncio.Event())
    provider = FakeProvider(reply, on_disconnect=on_disconnect)  # type: ignore[arg-type]
    return PipelineFixture([provider]), reply, rest
