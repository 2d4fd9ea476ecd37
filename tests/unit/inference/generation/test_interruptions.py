"""The gateway stops, the reader is slow, and nothing is left behind."""

import asyncio
import gc
import json
import weakref

import pytest

from tests.support.seams.inference import HIGH_WATER
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    failed,
    received,
    steps,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import (
    CUT,
    UNREACHABLE,
    abandoned_pipeline,
    make_pipeline,
)
from tollhouse.kernel.errors import status_of

# The gateway stops


async def test_an_interruption_before_anything_was_sent_is_an_error() -> None:
    w = make_pipeline(whole_reply())
    exchange = w.begin()
    w.pipeline.interrupt_all()
    assert status_of(await failed(exchange)) == 503
    assert w.settler.records == []


async def test_an_interruption_while_the_provider_decides_is_an_error_and_booked() -> None:
    w = PipelineFixture([FakeProvider(whole_reply(), accepts=asyncio.Event())])
    exchange = w.begin()
    await steps()
    w.pipeline.interrupt_all()
    assert (await failed(exchange)).message == "The gateway is stopping."
    [record] = w.settler.booked
    assert (record.finish_reason, record.cost_nano) == ("error", 0)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_interruption_in_mid_stream_ends_it_legally(times: int) -> None:
    w, reply, _ = abandoned_pipeline(stream=True)
    reply.closing = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    for _ in range(times):
        w.pipeline.interrupt_all()
    reply.closing.set()
    seen = check_stream(await received(exchange))
    assert (seen.text, seen.last["error"]["code"]) == ("Hello", 503)
    assert len(w.settler.records) == 1
    assert reply.closed == 1


async def test_a_second_interruption_while_the_reply_is_closed_changes_nothing() -> None:
    w, reply, _ = abandoned_pipeline(stream=True)
    reply.closing = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    reply.closing.set()
    assert check_stream(await received(exchange)).failed
    assert len(w.settler.records) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_interruption_during_the_settlement_comes_too_late(stream: bool) -> None:  # noqa: FBT001
    w = make_pipeline(
        stream_reply() if stream else whole_reply(),
        settler=FakeSettler(ready=(ready := asyncio.Event())),
    )
    exchange = w.begin(stream=stream)
    await steps()
    w.pipeline.interrupt_all()
    ready.set()
    reply = await received(exchange)
    assert not check_stream(reply).failed if stream else json.loads(reply)["usage"]["cost"]
    assert len(w.settler.records) == 1


async def test_an_interruption_ends_a_drained_reply_too() -> None:
    w, reply, _ = abandoned_pipeline(stream=True, on_disconnect="drain")
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    w.pipeline.interrupt_all()
    await steps()
    assert (reply.closed, len(w.settler.booked), w.in_flight) == (1, 1, 0)


async def test_a_client_that_left_before_the_interruption_is_booked_as_one_that_left() -> None:
    w, _, _ = abandoned_pipeline(stream=True)
    exchange = w.begin(stream=True)
    await steps()
    exchange.client_left()
    w.pipeline.interrupt_all()
    await steps()
    [record] = w.settler.booked
    assert (record.cancelled, record.finish_reason) == (True, None)


async def test_a_writer_that_waits_for_a_slow_reader_can_be_interrupted() -> None:
    big = replies.chunk({"content": "x" * (2 * HIGH_WATER)})
    w = make_pipeline(FakeReply([big, replies.DONE]))
    exchange = w.begin(stream=True)
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    assert check_stream(await received(exchange)).failed


# A slow reader


async def test_a_slow_reader_stops_the_provider_and_lets_it_go_on() -> None:
    pieces = [replies.chunk({"content": "x" * 65_536}) for _ in range(32)]
    reply = FakeReply([*pieces, replies.chunk({}, "stop"), replies.USAGE_CHUNK, replies.DONE])
    w = make_pipeline(reply)
    exchange = w.begin(stream=True)
    await steps()
    assert len(reply.read) <= HIGH_WATER // 65_536 + 1
    assert w.settler.records == []
    seen = check_stream(await received(exchange))
    assert len(seen.text) == 32 * 65_536
    assert not seen.failed


# Nothing is left behind


@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_that_ended_leaves_nothing_for_the_garbage_collector(
    stream: bool,  # noqa: FBT001
) -> None:
    w = make_pipeline(stream_reply() if stream else whole_reply())
    gc.collect()
    gc.disable()
    try:
        exchange = w.begin(stream=stream)
        [generation] = w.pipeline._running  # noqa: SLF001 - nobody else has it
        alive = weakref.ref(generation)
        del generation
        await received(exchange)
        await steps()
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [UNREACHABLE, CUT, RuntimeError("x")])
async def test_a_failure_is_counted_by_its_status(error: Exception) -> None:
    w = make_pipeline(error)
    answer = await failed(w.begin())
    await steps()
    assert w.finished(status_of(answer)) == 1
    assert w.in_flight == 0


async def test_two_replies_of_one_world_are_apart() -> None:
    w = make_pipeline(whole_reply())
    one, two = w.begin(), w.begin()
    ids = [json.loads(await received(each))["id"] for each in (one, two)]
    assert len(set(ids)) == 2
    assert [each.id for each in w.settler.booked] == ids
