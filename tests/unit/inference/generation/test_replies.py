"""A reply that goes well, and its money: relayed, booked, priced, settled before its last byte."""

import asyncio
import json
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from tests.support.seams.accounting import Attribution, CostState, Price
from tests.support.seams.identity import AccessPolicy
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    MODEL,
    PRICE,
    FakeAdmission,
    FakeProvider,
    FakeReply,
    FakeSettler,
    PipelineFixture,
    failed,
    outcome,
    received,
    steps,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import (
    COST,
    CUT,
    STREAMED,
    UNREACHABLE,
    USAGE,
    good_reply,
    make_pipeline,
    shown,
)
from tests.unit.inference.replies import DONE, ROLE, USAGE_CHUNK, chunk
from tollhouse.kernel.errors import (
    Forbidden,
    PaymentRequired,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
    status_of,
)

# What is written down


@STREAMED
async def test_a_reply_and_its_record_say_what_happened(*, stream: bool) -> None:
    first, second = FakeProvider(good_reply(stream=stream)), FakeProvider(whole_reply())
    w = PipelineFixture([first, second])
    exchange = w.begin(stream=stream, model="large")
    last = shown(await received(exchange), stream=stream)
    [record] = w.settler.booked
    assert (record.model, record.provider, record.provider_model) == (MODEL, "Acme", "p0-model")
    assert (record.account_id, record.workspace_id) == ("account", "workspace")
    assert (record.key_hash, record.api_type) == ("a" * 64, "completions")
    assert (record.streamed, record.cancelled) == (stream, False)
    assert (record.finish_reason, record.native_finish_reason) == ("stop", "stop")
    assert (record.upstream_id or "").startswith("chatcmpl-")
    assert [(each.provider, each.status) for each in record.attempts] == [("Acme", 200)]
    assert (record.cost_state, record.usage) == (CostState.EXACT, USAGE)
    assert (record.cost_nano, record.provider_cost_nano) == (COST, COST)
    assert (last["model"], last["usage"]["cost"]) == (MODEL, COST / 1e9)
    [admitted] = w.admission.requests
    assert exchange.generation_id == last["id"] == record.id == admitted.generation_id
    assert exchange.generation_id.startswith(f"gen-{last['created']}-")
    assert ([call.endpoint.model for call in first.calls], second.calls) == (["p0-model"], [])


async def test_each_field_of_a_record_holds_its_own() -> None:
    cached = {"cached_tokens": 4, "cache_write_tokens": 5}
    counts = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": cached}
    usage = counts | {"completion_tokens_details": {"reasoning_tokens": 7}}
    answered = whole_reply(usage=usage, choices=[replies.choice("Hi", "end_turn")])
    answered.body.append(end := asyncio.Event())
    dear_images = Price(replace(PRICE.rates, image=Decimal("0.01")))
    w = PipelineFixture([FakeProvider(answered)], price=dear_images)
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/a.png"}}
    asked = w.request("/chat/completions", messages=[{"role": "user", "content": [picture] * 2}])
    asked.subject = replace(asked.subject, payer_hash="b" * 64)
    said = [each.name for each in fields(Attribution)]
    asked.attribution = Attribution(*said)
    exchange = w.pipeline.begin(asked)
    await steps()
    w.clock.advance(0.5)
    end.set()
    await received(exchange)
    [record] = w.settler.booked
    assert structs.asdict(record) == {
        "id": exchange.generation_id,
        "account_id": "account",
        "workspace_id": "workspace",
        "key_hash": "a" * 64,
        "payer_hash": "b" * 64,
        "api_type": "completions",
        "model": MODEL,
        "provider": "Acme",
        "provider_model": "p0-model",
        "upstream_id": replies.whole()["id"],
        "is_byok": False,
        "streamed": False,
        "cancelled": False,
        "finish_reason": "stop",
        "native_finish_reason": "end_turn",
        "cost_state": "exact",
        "cost_nano": 20_114_400,
        "provider_cost_nano": 20_114_400,
        "input_tokens": 91,
        "cache_read_tokens": 4,
        "cache_write_tokens": 5,
        "cache_write_1h_tokens": 0,
        "output_tokens": 9,
        "reasoning_tokens": 7,
        "images": 2,
        "free_limited": False,
        "latency_ms": 500,
        "generation_ms": 0,
        "attempts_json": '[{"provider":"Acme","status":200,"latency_ms":0,"is_byok":false}]',
        **dict(zip(said, said, strict=True)),
        "created_ms": asked.created_ms,
        "estimate_nano": None,
        "rights": (),
    }


@STREAMED
async def test_times_are_measured(*, stream: bool) -> None:
    head, end = asyncio.Event(), asyncio.Event()
    body = good_reply(stream=stream)
    body.body.insert(2 if stream else 0, end)
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


async def test_a_stream_is_read_past_its_done_to_the_end_of_its_body() -> None:
    tail = b": the last bytes of the connection\n\n"
    reply = stream_reply(then=[tail])
    w = make_pipeline(reply)
    check_stream(await received(w.begin(stream=True)))
    await steps()
    assert reply.read[-1] == tail


@pytest.mark.parametrize("error", [CUT, RuntimeError("x"), OSError("x")])
async def test_what_fails_after_done_changes_nothing(error: Exception) -> None:
    reply = stream_reply(then=[error])
    w = make_pipeline(reply)
    assert not check_stream(await received(w.begin(stream=True))).failed
    await steps()
    assert (len(w.settler.records), reply.closed, w.in_flight) == (1, 1, 0)


async def test_a_policy_decides_on_the_model_whatever_it_was_called() -> None:
    w = make_pipeline(whole_reply(), policies=[AccessPolicy("the key", blocked_models=(MODEL,))])
    with pytest.raises(Forbidden, match=f"blocks the model {MODEL}"):
        await received(w.begin(model="large"))


# Money

FORMS = ["/chat/completions", "/responses", "/messages", "/completions"]
UNFINISHED = {
    "said": [chunk(ROLE), chunk({"content": "Half"}), USAGE_CHUNK],
    "empty": [chunk(ROLE), USAGE_CHUNK, DONE],
    "no choices": [USAGE_CHUNK, DONE],
    "an empty event": [replies.event({}), DONE],
    "done alone": [DONE],
}


@pytest.mark.parametrize("events", UNFINISHED.values(), ids=UNFINISHED)
@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_without_a_finish_reason_fails_and_costs_nothing(
    form: str, events: list[bytes]
) -> None:
    w = make_pipeline(FakeReply([*events]))
    said = await outcome(w.ask(form, stream=True))
    if (form == "/chat/completions" and len(events) < 3) or isinstance(said, TollhouseError):
        assert isinstance(said, ProviderUnavailable)
        assert "invalid response" in said.message
    else:
        assert b'"error"' in said
    [record] = w.settler.booked
    assert (record.cost_nano, record.finish_reason) == (0, "error")


@STREAMED
async def test_without_usage_the_cost_is_unknown_and_nothing_is_charged(*, stream: bool) -> None:
    w = make_pipeline(stream_reply("no usage") if stream else whole_reply(usage=None))
    assert shown(await received(w.begin(stream=stream)), stream=stream)["usage"]["cost"] is None
    [record] = w.settler.booked
    assert record.cost_state == CostState.UNKNOWN
    assert (record.cost_nano, record.provider_cost_nano) == (0, None)


@STREAMED
@pytest.mark.parametrize(("image", "counted"), [("0.01", 2), (None, None)])
async def test_images_are_charged_where_they_have_a_price(
    image: str | None, counted: int | None, *, stream: bool
) -> None:
    price = Price(replace(PRICE.rates, image=Decimal(image))) if image else PRICE
    w = make_pipeline(good_reply(stream=stream), price=price)
    look = [{"type": "image_url", "image_url": {"url": "a"}}] * 2
    await received(w.begin(stream=stream, messages=[{"role": "user", "content": look}]))
    [record] = w.settler.booked
    assert (record.images, record.cost_nano) == (counted, COST + 10_000_000 * (counted or 0))


async def test_a_reply_that_finished_with_an_error_is_free_and_costs_the_provider() -> None:
    w = make_pipeline(whole_reply(choices=[replies.choice("half", "error")]))
    assert json.loads(await received(w.begin()))["usage"]["cost"] == 0.0
    record = w.settler.booked[0]
    assert (record.cost_nano, record.provider_cost_nano) == (0, COST)


# Settlement


@STREAMED
async def test_the_last_bytes_wait_for_the_settlement_and_it_holds_until_then(
    *, stream: bool
) -> None:
    ready = asyncio.Event()
    w = make_pipeline(good_reply(stream=stream), settler=FakeSettler(ready=ready))
    exchange = w.begin(stream=stream)
    await steps()
    first = await exchange.read() if stream else b""
    assert (b'"finish_reason":"stop"' in first) == stream
    assert b'"usage"' not in first
    assert b"[DONE]" not in first
    rest = asyncio.create_task(received(exchange))
    await steps()
    assert (len(w.settler.records), exchange.begun, rest.done()) == (1, stream, False)
    assert w.admission.holding
    ready.set()
    assert shown(first + await rest, stream=stream)["id"] == exchange.generation_id
    assert not w.admission.holding


@pytest.mark.parametrize("reply", ["whole", "stream", "a failure"])
async def test_a_settlement_that_fails_withholds_the_end_of_a_reply(reply: str) -> None:
    broken = FakeSettler(broken=OSError("disk full"))
    cut = FakeReply([chunk({"content": "a"}), CUT])
    stream = reply != "whole"
    w = make_pipeline(cut if reply == "a failure" else good_reply(stream=stream), settler=broken)
    exchange = w.begin(stream=stream)
    if stream:
        assert check_stream(await received(exchange)).last["error"]["code"] == 503
    else:
        error = await failed(exchange)
        assert (status_of(error), error.retry_after) == (503, None)
        assert "disk full" not in error.message
    assert not exchange.booked
    assert not w.admission.holding


# Admission

NO_CREDITS = PaymentRequired("No credits.", metadata={"reason": "insufficient_credits"})


@STREAMED
@pytest.mark.parametrize(
    ("refusal", "status"), [(NO_CREDITS, 402), (Unavailable("Charges cannot be kept now."), 503)]
)
async def test_what_is_refused_reaches_nobody_and_books_nothing(
    refusal: TollhouseError, status: int, *, stream: bool
) -> None:
    w = make_pipeline(whole_reply(), admission=FakeAdmission(refused=refusal))
    assert await failed(w.begin(stream=stream)) is refusal
    await steps()
    assert (w.providers[0].calls, w.settler.records, w.in_flight) == ([], [], 0)
    assert w.finished(status) == 1


async def test_an_item_of_a_batch_claims_nothing_since_its_batch_did() -> None:
    w = make_pipeline(whole_reply(), admission=FakeAdmission(refused=NO_CREDITS))
    await received(w.begin(in_batch=True))
    assert (w.admission.requests, len(w.settler.booked)) == ([], 1)


async def test_a_fallback_is_not_admitted_again() -> None:
    w = make_pipeline(UNREACHABLE, whole_reply())
    await received(w.begin())
    assert len(w.admission.requests) == 1


async def test_a_client_that_goes_away_while_it_waits_to_begin_leaves() -> None:
    class Waiting(FakeAdmission):
        def try_admit(self, request: Any) -> None:
            """It has to wait."""

        async def admit(self, request: Any) -> bool:
            await asyncio.Event().wait()
            return await super().admit(request)

    w = make_pipeline(whole_reply(), admission=Waiting())
    exchange = w.begin()
    await steps()
    exchange.client_left()
    await steps()
    assert (w.in_flight, w.providers[0].calls, w.settler.records) == (0, [], [])
