"""A reply that goes well, and its money: relayed, booked, priced, settled before its last byte."""

import asyncio
import json
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support.seams.accounting import CostState, Price
from tests.support.seams.identity import AccessPolicy
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    MODEL,
    PRICE,
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
from tests.unit.inference.generation.pipeline_fixtures import COST, CUT, USAGE, make_pipeline
from tollhouse.kernel.errors import Forbidden, NotFound, ProviderUnavailable, status_of

# A reply that goes well


async def test_a_whole_reply_is_relayed_and_booked() -> None:
    w = make_pipeline(whole_reply())
    reply = json.loads(await received(w.begin()))
    assert reply["choices"][0]["message"]["content"] == "Hello! How can I assist you today?"
    [record] = w.settler.booked
    assert (record.cost_state, record.usage) == (CostState.EXACT, USAGE)
    assert (record.cost_nano, record.provider_cost_nano) == (COST, COST)
    assert reply["usage"]["cost"] == COST / 1e9


async def test_a_stream_is_relayed_and_booked() -> None:
    w = make_pipeline(stream_reply())
    seen = check_stream(await received(w.begin(stream=True)))
    assert seen.text == "Hello w\N{LATIN SMALL LETTER O WITH DIAERESIS}rld \N{GRINNING FACE}"
    [record] = w.settler.booked
    assert (record.cost_state, record.usage) == (CostState.EXACT, USAGE)
    assert seen.last["usage"]["cost"] == record.cost_nano / 1e9


@pytest.mark.parametrize("stream", [False, True])
async def test_the_record_says_what_happened(stream: bool) -> None:  # noqa: FBT001
    provider = FakeProvider(stream_reply() if stream else whole_reply(), name="Acme")
    w = PipelineFixture([provider])
    await received(w.begin(stream=stream))
    [record] = w.settler.booked
    assert (record.model, record.provider, record.provider_model) == (MODEL, "Acme", "p0-model")
    assert (record.account_id, record.workspace_id) == ("account", "workspace")
    assert (record.key_hash, record.api_type) == ("a" * 64, "completions")
    assert (record.streamed, record.cancelled) == (stream, False)
    assert (record.finish_reason, record.native_finish_reason) == ("stop", "stop")
    assert (record.upstream_id or "").startswith("chatcmpl-")
    assert [(each.provider, each.status) for each in record.attempts] == [("Acme", 200)]


@pytest.mark.parametrize("stream", [False, True])
async def test_times_are_measured(stream: bool) -> None:  # noqa: FBT001
    head, end = asyncio.Event(), asyncio.Event()
    body = stream_reply() if stream else whole_reply()
    body.body.insert(1 if stream else 0, end)
    w = PipelineFixture([FakeProvider(body, accepts=head)])
    exchange = w.begin(stream=stream)
    await steps()
    w.clock.advance(0.5)
    head.set()
    await steps()
    w.clock.advance(0.25)
    end.set()
    await received(exchange)
    [record] = w.settler.booked
    assert record.attempts[0].latency_ms == 500
    assert (record.latency_ms, record.generation_ms) == ((500, 250) if stream else (750, 0))


async def test_the_provider_gets_the_request_once() -> None:
    provider = FakeProvider(whole_reply())
    w = PipelineFixture([provider, FakeProvider(whole_reply())])
    await received(w.begin())
    assert [call.endpoint.model for call in provider.calls] == ["p0-model"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_providers_reply_is_closed(stream: bool) -> None:  # noqa: FBT001
    reply = stream_reply() if stream else whole_reply()
    await received(make_pipeline(reply).begin(stream=stream))
    await steps()
    assert reply.closed == 1


async def test_a_stream_is_read_past_its_done_to_the_end_of_its_body() -> None:
    tail = b": the last bytes of the connection\n\n"
    reply = stream_reply(then=[tail])
    w = make_pipeline(reply)
    check_stream(await received(w.begin(stream=True)))
    await steps()
    assert reply.read[-1] == tail


async def test_what_fails_after_done_changes_nothing() -> None:
    w = make_pipeline(stream_reply(then=[CUT]))
    assert not check_stream(await received(w.begin(stream=True))).failed
    assert len(w.settler.records) == 1


@pytest.mark.parametrize("error", [RuntimeError("x"), OSError("x")])
async def test_whatever_happens_after_done_the_reply_is_closed(error: Exception) -> None:
    reply = stream_reply(then=[error])
    w = make_pipeline(reply)
    assert not check_stream(await received(w.begin(stream=True))).failed
    await steps()
    assert (reply.closed, w.in_flight) == (1, 0)


async def test_an_unknown_model_is_refused_and_nothing_runs() -> None:
    w = make_pipeline(whole_reply())
    with pytest.raises(NotFound):
        w.begin(model="acme/small")
    assert w.in_flight == 0


# Money


@pytest.mark.parametrize("events", [[], [replies.event({})], [replies.USAGE_CHUNK]])
async def test_a_stream_of_nothing_but_its_end_is_an_error_and_costs_nothing(
    events: list[bytes],
) -> None:
    w = make_pipeline(FakeReply([*events, replies.DONE]))
    with pytest.raises(ProviderUnavailable, match="invalid response"):
        await received(w.begin(stream=True))
    [record] = w.settler.booked
    assert (record.finish_reason, record.cost_nano) == ("error", 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_without_usage_the_cost_is_unknown_and_nothing_is_charged(stream: bool) -> None:  # noqa: FBT001
    w = make_pipeline(stream_reply("no usage") if stream else whole_reply(usage=None))
    reply = await received(w.begin(stream=stream))
    shown = check_stream(reply).last if stream else json.loads(reply)
    assert shown["usage"]["cost"] is None
    [record] = w.settler.booked
    assert record.cost_state == CostState.UNKNOWN
    assert (record.cost_nano, record.provider_cost_nano) == (0, None)


LOOK = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}] * 2}]


@pytest.mark.parametrize("stream", [False, True])
async def test_images_are_charged_where_they_have_a_price(stream: bool) -> None:  # noqa: FBT001
    price = Price(replace(PRICE.rates, image=Decimal("0.01")))
    w = make_pipeline(stream_reply() if stream else whole_reply(), price=price)
    await received(w.begin(stream=stream, messages=LOOK))
    [record] = w.settler.booked
    assert (record.images, record.cost_nano) == (2, COST + 20_000_000)


async def test_images_are_not_counted_where_they_have_none() -> None:
    w = make_pipeline(whole_reply())
    await received(w.begin(messages=LOOK))
    [record] = w.settler.booked
    assert (record.images, record.cost_nano) == (None, COST)


async def test_a_reply_that_finished_with_an_error_is_free_and_costs_the_provider() -> None:
    w = make_pipeline(whole_reply(choices=[replies.choice("half", "error")]))
    assert json.loads(await received(w.begin()))["usage"]["cost"] == 0.0
    record = w.settler.booked[0]
    assert (record.cost_nano, record.provider_cost_nano) == (0, COST)


# Settlement


async def test_a_whole_reply_waits_for_its_settlement() -> None:
    w = make_pipeline(whole_reply(), settler=FakeSettler(ready=(ready := asyncio.Event())))
    read = asyncio.create_task(received(exchange := w.begin()))
    await steps()
    assert len(w.settler.records) == 1
    assert not read.done()
    assert not exchange.begun
    ready.set()
    assert json.loads(await read)["id"] == exchange.generation_id


async def test_the_last_bytes_of_a_stream_wait_for_its_settlement() -> None:
    w = make_pipeline(stream_reply(), settler=FakeSettler(ready=(ready := asyncio.Event())))
    exchange = w.begin(stream=True)
    await steps()
    first = await exchange.read()
    assert b'"finish_reason":"stop"' in first
    assert b'"usage"' not in first
    assert b"[DONE]" not in first
    rest = asyncio.create_task(received(exchange))
    await steps()
    assert not rest.done()
    ready.set()
    assert not check_stream(first + await rest).failed


async def test_a_settlement_that_fails_withholds_a_whole_reply() -> None:
    w = make_pipeline(whole_reply(), settler=FakeSettler(broken=OSError("disk full")))
    exchange = w.begin()
    error = await failed(exchange)
    assert status_of(error) == 503
    assert "disk full" not in error.message
    assert error.retry_after is None
    assert not exchange.booked


async def test_a_settlement_that_fails_ends_a_stream_with_an_error() -> None:
    w = make_pipeline(stream_reply(), settler=FakeSettler(broken=OSError("disk full")))
    exchange = w.begin(stream=True)
    seen = check_stream(await received(exchange))
    assert seen.last["error"]["code"] == 503
    assert not exchange.booked


async def test_a_settlement_that_fails_after_a_failure_ends_legally_too() -> None:
    reply = FakeReply([replies.chunk(replies.ROLE), CUT])
    w = make_pipeline(reply, settler=FakeSettler(broken=OSError("disk full")))
    assert check_stream(await received(w.begin(stream=True))).last["error"]["code"] == 503


async def test_a_policy_decides_on_the_model_whatever_it_was_called() -> None:
    w = make_pipeline(whole_reply(), policies=[AccessPolicy("the key", blocked_models=(MODEL,))])
    with pytest.raises(Forbidden, match=f"blocks the model {MODEL}"):
        await received(w.begin(model="large"))


async def test_a_reply_and_its_record_name_the_model_of_the_catalogue() -> None:
    w = make_pipeline(whole_reply())
    assert json.loads(await received(w.begin(model="large")))["model"] == MODEL
    assert w.settler.booked[0].model == MODEL
