"""The client goes away, and its call is cancelled or drained, and booked."""

import asyncio

import pytest

from tests.support.seams.accounting import CostState, cost
from tests.support.seams.inference import HIGH_WATER
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    PRICE,
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    steps,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import (
    COST,
    CUT,
    UNREACHABLE,
    USAGE,
    abandoned_pipeline,
    make_pipeline,
)


async def test_a_client_that_leaves_before_anything_was_sent_leaves_nothing() -> None:
    provider = FakeProvider(whole_reply())
    w = PipelineFixture([provider])
    exchange = w.begin()
    exchange.client_left()
    await steps()
    assert (provider.calls, w.settler.records, w.in_flight) == ([], [], 0)


async def test_a_client_that_leaves_while_the_provider_decides_is_booked() -> None:
    provider = FakeProvider(whole_reply(), accepts=asyncio.Event())
    w = PipelineFixture([provider, FakeProvider(whole_reply())])
    exchange = w.begin()
    await steps()
    exchange.client_left()
    await steps()
    [record] = w.settler.booked
    assert (record.cancelled, record.finish_reason) == (True, None)
    assert record.cost_state == CostState.ESTIMATED
    assert record.cost_nano == 0
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_in_the_middle_cancels_the_call_and_is_booked(
    stream: bool,  # noqa: FBT001
) -> None:
    w, reply, _ = abandoned_pipeline(stream=stream)
    exchange = w.begin(stream=stream)
    await steps()
    exchange.client_left()
    await steps()
    assert reply.closed == 1
    [record] = w.settler.booked
    assert record.cancelled
    assert record.finish_reason is None
    assert record.cost_state == CostState.ESTIMATED
    assert w.in_flight == 0
    assert w.finished(499) == 1


async def test_a_client_that_leaves_pays_for_what_was_seen() -> None:
    w, _, _ = abandoned_pipeline(stream=True)
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    await steps()
    record = w.settler.booked[0]
    assert record.output_tokens == 2  # "Hello"
    assert record.cost_nano == record.provider_cost_nano == cost(record.usage, PRICE).total_nano


async def test_the_call_is_cancelled_before_the_books_are_asked() -> None:
    w, reply, _ = abandoned_pipeline(stream=True)
    w.settler.ready = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    await steps()
    assert (reply.closed, w.settler.booked) == (1, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_its_reply_is_settled_is_booked_once_and_exactly(
    stream: bool,  # noqa: FBT001
) -> None:
    reply = stream_reply() if stream else whole_reply()
    w = make_pipeline(reply, settler=FakeSettler(ready=(ready := asyncio.Event())))
    exchange = w.begin(stream=stream)
    await steps()
    exchange.client_left()
    await steps()
    ready.set()
    await steps()
    assert len(w.settler.records) == 1
    assert w.settler.booked[0].cost_state == CostState.EXACT
    assert reply.closed == 1
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_of_a_provider_that_bills_all_the_same_is_read_to_its_end(
    stream: bool,  # noqa: FBT001
) -> None:
    w, reply, rest = abandoned_pipeline(stream=stream, on_disconnect="drain")
    exchange = w.begin(stream=stream)
    await steps()
    exchange.client_left()
    await steps()
    assert (reply.closed, w.settler.records) == (0, [])
    rest.set()
    await steps()
    [record] = w.settler.booked
    assert record.cancelled
    assert (record.cost_state, record.usage) == (CostState.EXACT, USAGE)
    assert (record.finish_reason, record.cost_nano) == ("stop", COST)
    assert w.in_flight == 0


async def test_a_drained_reply_that_breaks_is_free() -> None:
    w, reply, rest = abandoned_pipeline(stream=True, on_disconnect="drain")
    reply.body.insert(3, CUT)
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    rest.set()
    await steps()
    [record] = w.settler.booked
    assert (record.finish_reason, record.cost_nano) == ("error", 0)
    assert (record.provider_cost_nano or 0) > 0


async def test_for_a_client_that_left_no_other_provider_is_asked() -> None:
    first = FakeProvider(UNREACHABLE, on_disconnect="drain", accepts=(accepts := asyncio.Event()))
    second = FakeProvider(whole_reply())
    w = PipelineFixture([first, second])
    exchange = w.begin()
    await steps()
    exchange.client_left()
    accepts.set()
    await steps()
    assert (second.calls, w.settler.records, w.in_flight) == ([], [], 0)


async def test_a_drained_reply_larger_than_the_buffer_does_not_wait_for_a_reader() -> None:
    big = replies.chunk({"content": "x" * (2 * HIGH_WATER)})
    reply = FakeReply([big, rest := asyncio.Event(), big, replies.chunk({}, "stop"), replies.DONE])
    w = PipelineFixture([FakeProvider(reply, on_disconnect="drain")])
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    rest.set()
    await steps()
    assert len(w.settler.booked) == 1
