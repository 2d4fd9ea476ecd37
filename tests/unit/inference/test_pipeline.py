import asyncio
import json

import pytest

from tests.support.stream_checks.chat import check_stream
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
from tollhouse.kernel.errors import Unavailable, status_of

LONG = 3600.0


def waiting() -> tuple[PipelineFixture, FakeReply, asyncio.Event]:
    reply = stream_reply()
    reply.body.insert(2, rest := asyncio.Event())
    return PipelineFixture([FakeProvider(reply)]), reply, rest


def cancel_generation(w: PipelineFixture) -> None:
    """Cancel the only generation as a loop that is torn down would."""
    [generation] = w.pipeline._running  # noqa: SLF001
    task = generation._task  # noqa: SLF001
    assert task is not None
    task.cancel()


async def test_generations_in_flight_are_counted() -> None:
    w, _, rest = waiting()
    one, two = w.begin(stream=True), w.begin(stream=True)
    assert w.in_flight == 2
    rest.set()
    await received(one)
    await received(two)
    await steps()
    assert w.in_flight == 0


async def test_generation_ids_carry_the_time_of_the_request() -> None:
    w = PipelineFixture([FakeProvider(whole_reply())])
    exchange = w.begin()
    reply = json.loads(await received(exchange))
    assert exchange.generation_id.startswith(f"gen-{reply['created']}-")


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_reader_hanging() -> None:
    w = PipelineFixture([FakeProvider(whole_reply())])
    exchange = w.begin()
    cancel_generation(w)
    assert status_of(await failed(exchange)) == 503
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_that_is_cancelled_in_its_settlement_leaves_no_reader_hanging(
    stream: bool,  # noqa: FBT001
) -> None:
    reply = stream_reply() if stream else whole_reply()
    w = PipelineFixture([FakeProvider(reply)], FakeSettler(ready=asyncio.Event()))
    exchange = w.begin(stream=stream)
    await steps()
    cancel_generation(w)
    with pytest.raises(Unavailable):
        await received(exchange)


async def test_a_generation_that_ends_badly_leaves_no_reader_hanging() -> None:
    w = PipelineFixture(
        [FakeProvider(FakeReply([], closing=OSError("x")))], FakeSettler(broken=KeyError("x"))
    )
    assert status_of(await failed(w.begin())) == 503


# A stop


async def test_a_drain_of_nothing_ends_at_once() -> None:
    await PipelineFixture([FakeProvider(whole_reply())]).pipeline.drain(LONG)


async def test_a_drain_lets_generations_finish() -> None:
    w, _, rest = waiting()
    exchange = w.begin(stream=True)
    drain = asyncio.create_task(w.pipeline.drain(LONG))
    await steps()
    assert not drain.done()
    rest.set()
    assert not check_stream(await received(exchange)).failed
    await drain
    assert len(w.settler.booked) == 1


async def test_a_drain_ends_generations_that_last() -> None:
    w, reply, _ = waiting()
    exchange = w.begin(stream=True)
    await steps()
    await w.pipeline.drain(0)
    assert (
        check_stream(await received(exchange)).last["error"]["message"]
        == "The gateway is stopping."
    )
    assert (len(w.settler.booked), reply.closed, w.in_flight) == (1, 1, 0)


async def test_a_drain_waits_for_settlements() -> None:
    w, _, _ = waiting()
    w.settler.ready = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    drain = asyncio.create_task(w.pipeline.drain(0))
    await steps()
    assert len(w.settler.records) == 1
    assert not drain.done()
    w.settler.ready.set()
    await drain
    assert check_stream(await received(exchange)).failed


async def test_during_a_drain_nothing_new_begins() -> None:
    w, _, rest = waiting()
    w.begin(stream=True)
    drain = asyncio.create_task(w.pipeline.drain(LONG))
    await steps()
    with pytest.raises(Unavailable) as caught:
        w.begin()
    assert caught.value.retry_after is None
    rest.set()
    await drain


async def test_two_drains_end_together() -> None:
    w, _, rest = waiting()
    exchange = w.begin(stream=True)
    drains = asyncio.gather(w.pipeline.drain(LONG), w.pipeline.drain(0))
    await steps()
    rest.set()
    await drains
    assert check_stream(await received(exchange)).failed
    assert len(w.settler.booked) == 1


async def test_a_stop_ends_every_generation_in_flight() -> None:
    w, _, _ = waiting()
    exchanges = [w.begin(stream=True) for _ in range(5)]
    await steps()
    w.pipeline.interrupt_all()
    for exchange in exchanges:
        assert check_stream(await received(exchange)).failed
    assert {each.id for each in w.settler.booked} == {each.generation_id for each in exchanges}
