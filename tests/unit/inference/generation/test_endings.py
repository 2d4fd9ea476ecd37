"""A client that leaves, a gateway that stops; and nothing is left behind.

`test_schedules` has them in any order: there is an end, one record, a closed reply, a legal stream.
"""

import asyncio
import gc
import weakref

import pytest

from tests.support.seams.accounting import CostState, cost
from tests.unit.inference.fakes import (
    PRICE,
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    failed,
    received,
    steps,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import (
    COST,
    CUT,
    STREAMED,
    abandoned_pipeline,
    good_reply,
    make_pipeline,
    shown,
)
from tollhouse.kernel.errors import Unavailable, status_of

# The client leaves


async def test_a_client_that_leaves_while_the_provider_decides_is_booked() -> None:
    decides = FakeProvider(whole_reply(), accepts=asyncio.Event())
    w = PipelineFixture([decides, FakeProvider(whole_reply())])
    exchange = w.begin()
    await steps()
    assert w.admission.holding
    exchange.client_left()
    await steps()
    [record] = w.settler.booked
    assert (record.cancelled, record.finish_reason) == (True, None)
    assert record.cost_state == CostState.ESTIMATED
    assert record.cost_nano == record.provider_cost_nano > 0
    assert (w.in_flight, bool(w.admission.holding)) == (0, False)


@STREAMED
async def test_a_client_that_leaves_cancels_the_call_and_then_pays_for_what_was_seen(
    *, stream: bool
) -> None:
    w, reply, _ = abandoned_pipeline(stream=stream)
    w.settler.ready = asyncio.Event()
    exchange = w.begin(stream=stream)
    await steps()
    exchange.client_left()
    await steps()
    assert (reply.closed, w.settler.booked) == (1, [])
    w.settler.ready.set()
    await steps()
    [record] = w.settler.booked
    assert (record.cancelled, record.finish_reason) == (True, None)
    assert record.cost_state == CostState.ESTIMATED
    if stream:
        assert record.output_tokens == 2  # "Hello"
        assert record.cost_nano == record.provider_cost_nano == cost(record.usage, PRICE).total_nano
    assert (reply.closed, w.in_flight, w.finished(499)) == (1, 0, 1)


@STREAMED
@pytest.mark.parametrize("event", ["leaves", "stops"])
async def test_what_happens_while_a_reply_is_settled_comes_too_late(
    event: str, *, stream: bool
) -> None:
    reply = good_reply(stream=stream)
    w = make_pipeline(reply, settler=FakeSettler(ready=(ready := asyncio.Event())))
    exchange = w.begin(stream=stream)
    await steps()
    (exchange.client_left if event == "leaves" else w.pipeline.interrupt_all)()
    await steps()
    ready.set()
    if event == "stops":
        assert shown(await received(exchange), stream=stream)["usage"]["cost"] == COST / 1e9
    await steps()
    assert len(w.settler.records) == 1
    assert w.settler.booked[0].cost_state == CostState.EXACT
    assert (reply.closed, w.in_flight) == (1, 0)


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


# The gateway stops


async def test_an_interruption_while_the_provider_decides_is_an_error_and_booked() -> None:
    w = PipelineFixture([FakeProvider(whole_reply(), accepts=asyncio.Event())])
    exchange = w.begin()
    await steps()
    w.pipeline.interrupt_all()
    error = await failed(exchange)
    assert (status_of(error), error.message) == (503, "The gateway is stopping.")
    [record] = w.settler.booked
    assert (record.finish_reason, record.cost_nano) == ("error", 0)


@pytest.mark.parametrize("left", [False, True])
async def test_a_client_that_left_before_the_interruption_is_booked_as_one_that_left(
    *, left: bool
) -> None:
    w, _, _ = abandoned_pipeline(stream=True)
    exchange = w.begin(stream=True)
    await steps()
    if left:
        exchange.client_left()
    w.pipeline.interrupt_all()
    await steps()
    [record] = w.settler.booked
    assert (record.cancelled, record.finish_reason) == ((True, None) if left else (False, "error"))


# Nothing is left behind


@STREAMED
async def test_a_generation_that_ended_leaves_nothing_for_the_garbage_collector(
    *, stream: bool
) -> None:
    w = make_pipeline(good_reply(stream=stream))
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


def cancel_generation(w: PipelineFixture) -> None:
    """Cancel the only generation as a loop that is torn down would."""
    [generation] = w.pipeline._running  # noqa: SLF001
    task = generation.task
    assert task is not None
    task.cancel()


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_reader_hanging() -> None:
    w = make_pipeline(whole_reply())
    exchange = w.begin()
    cancel_generation(w)
    assert status_of(await failed(exchange)) == 503
    assert w.in_flight == 0


@STREAMED
async def test_a_task_that_is_cancelled_in_its_settlement_leaves_no_reader_hanging(
    *, stream: bool
) -> None:
    w = make_pipeline(good_reply(stream=stream), settler=FakeSettler(ready=asyncio.Event()))
    exchange = w.begin(stream=stream)
    await steps()
    cancel_generation(w)
    with pytest.raises(Unavailable):
        await received(exchange)


async def test_a_generation_that_ends_badly_leaves_no_reader_hanging() -> None:
    broken = FakeSettler(broken=KeyError("x"))
    w = make_pipeline(FakeReply([], closing=OSError("x")), settler=broken)
    assert status_of(await failed(w.begin())) == 503
