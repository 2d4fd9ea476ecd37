import asyncio
import gc
import json
import weakref

import pytest

from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    MODEL,
    PRICE,
    FakeBooks,
    FakeProvider,
    FakeReply,
    World,
    failed,
    received,
    steps,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.legal_stream import checked
from tollhouse.accounting.pricing import cost
from tollhouse.accounting.types import CostState, Usage
from tollhouse.inference.exchange import HIGH_WATER
from tollhouse.inference.providers.failures import failure
from tollhouse.kernel.envelope import status_of
from tollhouse.kernel.errors import (
    Bug,
    NotFound,
    ProviderFailure,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
)

USAGE = Usage(input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3)
COST = cost(USAGE, PRICE).total_nano
UNREACHABLE = ProviderUnavailable("Acme cannot be reached.", provider_name="Acme")
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)
STOP = Unavailable("The gateway is stopping.")


def world(*replies_: FakeReply | BaseException, **fields: object) -> World:
    return World([FakeProvider(each) for each in replies_], **fields)  # type: ignore[arg-type]


# A reply that goes well


async def test_a_whole_reply_is_relayed_and_booked() -> None:
    w = world(whole_reply())
    reply = json.loads(await received(w.begin()))
    assert reply["choices"][0]["message"]["content"] == "Hello! How can I assist you today?"
    [record] = w.books.booked
    assert (record.charge.state, record.charge.usage) == (CostState.EXACT, USAGE)
    assert (record.charge.cost_nano, record.charge.provider_cost_nano) == (COST, COST)
    assert reply["usage"]["cost"] == COST / 1e9


async def test_a_stream_is_relayed_and_booked() -> None:
    w = world(stream_reply())
    seen = checked(await received(w.begin(stream=True)))
    assert seen.text == "Hello w\N{LATIN SMALL LETTER O WITH DIAERESIS}rld \N{GRINNING FACE}"
    [record] = w.books.booked
    assert (record.charge.state, record.charge.usage) == (CostState.EXACT, USAGE)
    assert seen.last["usage"]["cost"] == record.charge.cost_nano / 1e9


@pytest.mark.parametrize("stream", [False, True])
async def test_the_record_says_what_happened(stream: bool) -> None:  # noqa: FBT001
    provider = FakeProvider(stream_reply() if stream else whole_reply(), name="Acme")
    w = World([provider])
    await received(w.begin(stream=stream))
    [record] = w.books.booked
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
    w = World([FakeProvider(body, accepts=head)])
    exchange = w.begin(stream=stream)
    await steps()
    w.clock.advance(0.5)
    head.set()
    await steps()
    w.clock.advance(0.25)
    end.set()
    await received(exchange)
    [record] = w.books.booked
    assert record.attempts[0].latency_ms == 500
    assert (record.latency_ms, record.generation_ms) == ((500, 250) if stream else (750, 0))


async def test_the_id_of_a_whole_reply_is_the_id_that_is_booked() -> None:
    w = world(whole_reply())
    exchange = w.begin()
    assert json.loads(await received(exchange))["id"] == exchange.generation_id
    assert w.books.booked[0].id == exchange.generation_id
    assert exchange.booked


async def test_the_id_of_every_chunk_is_the_id_that_is_booked() -> None:
    w = world(stream_reply())
    exchange = w.begin(stream=True)
    seen = checked(await received(exchange))
    assert {each["id"] for each in [*seen.chunks, seen.last]} == {exchange.generation_id}
    assert w.books.booked[0].id == exchange.generation_id


async def test_the_model_of_every_reply_is_the_catalogues() -> None:
    w = world(whole_reply())
    assert json.loads(await received(w.begin()))["model"] == MODEL
    w = world(stream_reply())
    seen = checked(await received(w.begin(stream=True)))
    assert {each["model"] for each in [*seen.chunks, seen.last]} == {MODEL}


async def test_the_provider_gets_the_request_once() -> None:
    provider = FakeProvider(whole_reply())
    w = World([provider, FakeProvider(whole_reply())])
    await received(w.begin())
    assert [call.endpoint.model for call in provider.calls] == ["p0-model"]


@pytest.mark.parametrize("stream", [False, True])
async def test_the_providers_reply_is_closed(stream: bool) -> None:  # noqa: FBT001
    reply = stream_reply() if stream else whole_reply()
    await received(world(reply).begin(stream=stream))
    await steps()
    assert reply.closed == 1


async def test_a_stream_is_read_past_its_done_to_the_end_of_its_body() -> None:
    tail = b": the last bytes of the connection\n\n"
    reply = stream_reply(then=[tail])
    w = world(reply)
    checked(await received(w.begin(stream=True)))
    await steps()
    assert reply.read[-1] == tail


async def test_what_fails_after_done_changes_nothing() -> None:
    w = world(stream_reply(then=[CUT]))
    assert not checked(await received(w.begin(stream=True))).failed
    assert len(w.books.records) == 1


@pytest.mark.parametrize("error", [RuntimeError("x"), OSError("x")])
async def test_whatever_happens_after_done_the_reply_is_closed(error: Exception) -> None:
    reply = stream_reply(then=[error])
    w = world(reply)
    assert not checked(await received(w.begin(stream=True))).failed
    await steps()
    assert (reply.closed, w.in_flight) == (1, 0)


async def test_an_unknown_model_is_refused_and_nothing_runs() -> None:
    w = world(whole_reply())
    with pytest.raises(NotFound):
        w.begin(model="acme/small")
    assert w.in_flight == 0


# Money


@pytest.mark.parametrize("stream", [False, True])
async def test_without_usage_the_cost_is_unknown_and_nothing_is_charged(stream: bool) -> None:  # noqa: FBT001
    w = world(stream_reply("no usage") if stream else whole_reply(usage=None))
    reply = await received(w.begin(stream=stream))
    shown = checked(reply).last if stream else json.loads(reply)
    assert shown["usage"]["cost"] is None
    [record] = w.books.booked
    assert record.charge.state is CostState.UNKNOWN
    assert (record.charge.cost_nano, record.charge.provider_cost_nano) == (0, None)


async def test_an_explicit_usage_of_zero_is_exactly_nothing() -> None:
    w = world(whole_reply(usage={"prompt_tokens": 0, "completion_tokens": 0}))
    assert json.loads(await received(w.begin()))["usage"]["cost"] == 0.0
    assert w.books.booked[0].charge.state is CostState.EXACT
    assert w.books.booked[0].charge.provider_cost_nano == 0


async def test_a_reply_that_finished_with_an_error_is_free_and_costs_the_provider() -> None:
    w = world(whole_reply(choices=[replies.choice("half", "error")]))
    assert json.loads(await received(w.begin()))["usage"]["cost"] == 0.0
    charge = w.books.booked[0].charge
    assert (charge.cost_nano, charge.provider_cost_nano) == (0, COST)


# Settlement


async def test_a_whole_reply_waits_for_its_settlement() -> None:
    w = world(whole_reply(), books=FakeBooks(ready=(ready := asyncio.Event())))
    read = asyncio.create_task(received(exchange := w.begin()))
    await steps()
    assert len(w.books.records) == 1
    assert not read.done()
    assert not exchange.begun
    ready.set()
    assert json.loads(await read)["id"] == exchange.generation_id


async def test_the_last_bytes_of_a_stream_wait_for_its_settlement() -> None:
    w = world(stream_reply(), books=FakeBooks(ready=(ready := asyncio.Event())))
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
    assert not checked(first + await rest).failed


async def test_a_settlement_that_fails_withholds_a_whole_reply() -> None:
    w = world(whole_reply(), books=FakeBooks(broken=OSError("disk full")))
    exchange = w.begin()
    error = await failed(exchange)
    assert status_of(error) == 503
    assert "disk full" not in error.message
    assert error.retry_after is None
    assert not exchange.booked


async def test_a_settlement_that_fails_ends_a_stream_with_an_error() -> None:
    w = world(stream_reply(), books=FakeBooks(broken=OSError("disk full")))
    exchange = w.begin(stream=True)
    seen = checked(await received(exchange))
    assert seen.last["error"]["code"] == 503
    assert not exchange.booked


async def test_a_settlement_that_fails_after_a_failure_ends_legally_too() -> None:
    reply = FakeReply([replies.chunk(replies.ROLE), CUT])
    w = world(reply, books=FakeBooks(broken=OSError("disk full")))
    assert checked(await received(w.begin(stream=True))).last["error"]["code"] == 503


# Failures before the first byte


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 429, 500, 502, 503, 504, 529])
async def test_a_provider_that_failed_is_followed_by_the_next(status: int) -> None:
    w = world(failure("Acme", status), whole_reply())
    await received(w.begin())
    [record] = w.books.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [status, 200]


async def test_a_provider_that_was_never_reached_is_followed_by_the_next() -> None:
    w = world(UNREACHABLE, whole_reply())
    await received(w.begin())
    assert [each.status for each in w.books.booked[0].attempts] == [None, 200]
    assert w.ambiguous == 0


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_request_that_was_refused_is_not_asked_again(status: int) -> None:
    second = FakeProvider(whole_reply())
    w = World([FakeProvider(failure("Acme", status, message="too long")), second])
    error = await failed(w.begin())
    assert isinstance(error, ProviderRefused)
    assert error.message == "Acme refused the request: too long."
    assert second.calls == []
    assert w.books.records == []


async def test_a_request_that_may_have_been_worked_on_is_not_asked_again() -> None:
    second = FakeProvider(whole_reply())
    w = World([FakeProvider(CUT), second])
    assert await failed(w.begin()) is CUT
    assert second.calls == []
    assert w.ambiguous == 1


async def test_a_request_that_may_have_been_worked_on_is_booked_without_a_charge() -> None:
    w = world(CUT)
    exchange = w.begin()
    await failed(exchange)
    [record] = w.books.booked
    assert exchange.booked
    assert record.finish_reason == "error"
    assert record.charge.state is CostState.ESTIMATED
    assert record.charge.cost_nano == 0
    assert (record.charge.provider_cost_nano or 0) > 0


async def test_a_request_that_an_idempotent_provider_may_have_worked_on_goes_to_the_next() -> None:
    w = world(CUT, whole_reply(), idempotent=True)
    await received(w.begin())
    [record] = w.books.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [None, 200]
    assert w.ambiguous == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_broke_off_is_not_asked_of_the_next_though_idempotent(
    *, stream: bool
) -> None:
    second = FakeProvider(whole_reply())
    body = [replies.chunk({"content": "a"}), CUT] if stream else [b"{", CUT]
    w = World([FakeProvider(FakeReply(body)), second], idempotent=True)
    exchange = w.begin(stream=stream)
    if stream:
        assert checked(await received(exchange)).failed
    else:
        assert await failed(exchange) is CUT
    assert second.calls == []


async def test_work_that_an_earlier_provider_may_have_done_is_booked_after_all_failed() -> None:
    w = world(CUT, failure("Beta", 500), idempotent=True)
    await failed(w.begin())
    [record] = w.books.booked
    assert [each.status for each in record.attempts] == [None, 500]
    assert record.charge.cost_nano == 0


@pytest.mark.parametrize("error", [UNREACHABLE, failure("Acme", 429), failure("Acme", 400)])
async def test_a_request_that_nobody_worked_on_is_not_booked(error: ProviderFailure) -> None:
    w = world(error)
    assert await failed(w.begin()) is error
    assert w.books.records == []


async def test_after_all_failed_the_last_error_is_the_answer() -> None:
    last = failure("Beta", 500)
    assert await failed(world(failure("Acme", 429), UNREACHABLE, last).begin()) is last


@pytest.mark.parametrize(
    ("hints", "answer"),
    [
        ([(429, 7)], 7),
        ([(503, 7)], 7),
        ([(429, None)], None),
        ([(429, 9), (503, 4), (429, 6)], 4),
        ([(429, 9), (503, None)], None),
        ([(429, None), (503, 4)], None),
        ([(500, 3)], None),
        ([(429, 3), (500, 3)], None),
        ([(504, 3)], None),
        ([(400, 3)], None),
        ([(429, 3), (400, 3)], None),
        ([(500, 3), (429, 5)], 3),
    ],
)
async def test_retry_after_is_the_smallest_hint_of_a_429_or_503_if_all_gave_one(
    hints: list[tuple[int, int | None]], answer: int | None
) -> None:
    errors = [failure("Acme", status, retry_after=hint) for status, hint in hints]
    assert (await failed(world(*errors).begin())).retry_after == answer


async def test_an_unexpected_error_of_a_provider_shows_nothing() -> None:
    w = world(RuntimeError("the secret is 42"))
    error = await failed(w.begin())
    assert isinstance(error, Bug)
    assert "42" not in error.message


@pytest.mark.parametrize("code", [429, "rate_limited"])
async def test_an_error_under_a_success_status_is_the_providers_error(code: object) -> None:
    body = json.dumps({"error": {"message": "slow down", "code": code}}).encode()
    w = world(FakeReply([body]))
    error = await failed(w.begin())
    assert isinstance(error, ProviderFailure)
    assert error.provider_code == code
    assert status_of(error) == (429 if code == 429 else 502)
    assert len(w.books.booked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices":[]}'])
async def test_a_whole_reply_of_garbage_is_a_502_that_names_the_provider(body: bytes) -> None:
    error = await failed(world(FakeReply([body])).begin())
    assert status_of(error) == 502
    assert error.metadata["provider_name"] == "Acme"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_breaks_before_its_first_byte_is_an_error(stream: bool) -> None:  # noqa: FBT001
    w = world(FakeReply([ProviderTimeout("late", provider_name="Acme", ambiguous=True)]))
    assert status_of(await failed(w.begin(stream=stream))) == 504
    assert len(w.books.booked) == 1


@pytest.mark.parametrize("name", ["no done", "text"])
async def test_a_stream_that_ends_before_its_first_chunk_is_a_502(name: str) -> None:
    reply = stream_reply(name)
    reply.body = [b": only a comment\n\n"]
    assert status_of(await failed(world(reply).begin(stream=True))) == 502


async def test_a_failure_of_an_accepted_request_is_booked_even_if_it_looks_unsent() -> None:
    w = world(FakeReply([UNREACHABLE]))
    await failed(w.begin())
    assert len(w.books.booked) == 1


# Failures in mid-stream


async def test_a_stream_that_breaks_ends_with_an_error_and_is_free() -> None:
    w = world(FakeReply([replies.chunk({"content": "Hello, hello"}), CUT]))
    seen = checked(await received(w.begin(stream=True)))
    assert seen.text == "Hello, hello"
    assert seen.last["error"]["message"] == "Acme closed the connection."
    [record] = w.books.booked
    assert record.finish_reason == "error"
    assert record.charge.state is CostState.ESTIMATED
    assert record.charge.usage.output_tokens == 3
    assert record.charge.cost_nano == 0
    assert record.charge.provider_cost_nano == cost(record.charge.usage, PRICE).total_nano > 0


@pytest.mark.parametrize(
    "piece",
    [
        b"data: garbage\n\n",
        replies.event({"error": {"message": "x", "code": 500}}),
        replies.event({"error": "x"}),
    ],
)
async def test_a_stream_that_goes_wrong_ends_with_an_error(piece: bytes) -> None:
    w = world(FakeReply([replies.chunk({"content": "a"}), piece, replies.DONE]))
    seen = checked(await received(w.begin(stream=True)))
    assert (seen.text, seen.failed) == ("a", True)


async def test_what_came_in_one_piece_with_an_error_is_passed_on_before_it() -> None:
    piece = replies.chunk({"content": "a"}) + replies.chunk({"content": "b"})
    error = replies.event({"error": {"message": "x", "code": 500}})
    w = world(FakeReply([piece + error]))
    seen = checked(await received(w.begin(stream=True)))
    assert (seen.text, seen.failed) == ("ab", True)


async def test_a_stream_without_done_that_finished_is_whole() -> None:
    w = world(stream_reply("no done"))
    assert not checked(await received(w.begin(stream=True))).failed


async def test_a_stream_that_broke_after_its_usage_is_booked_from_it() -> None:
    reply = FakeReply([replies.chunk({"content": "a"}), replies.USAGE_CHUNK, CUT])
    w = world(reply)
    assert checked(await received(w.begin(stream=True))).failed
    charge = w.books.booked[0].charge
    assert (charge.state, charge.cost_nano, charge.provider_cost_nano) == (
        CostState.EXACT,
        0,
        COST,
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_cannot_be_closed_is_booked_all_the_same(stream: bool) -> None:  # noqa: FBT001
    reply = FakeReply([CUT], closing=OSError("already closed"))
    w = world(reply)
    assert await failed(w.begin(stream=stream)) is CUT
    assert len(w.books.booked) == 1


# The client goes away


def leaving(
    *, stream: bool, on_disconnect: str = "cancel"
) -> tuple[World, FakeReply, asyncio.Event]:
    """Return a world whose provider has given half of its reply, and the event for the rest."""
    reply = stream_reply() if stream else whole_reply()
    reply.body.insert(2 if stream else 0, rest := asyncio.Event())
    provider = FakeProvider(reply, on_disconnect=on_disconnect)  # type: ignore[arg-type]
    return World([provider]), reply, rest


async def test_a_client_that_leaves_before_anything_was_sent_leaves_nothing() -> None:
    provider = FakeProvider(whole_reply())
    w = World([provider])
    exchange = w.begin()
    exchange.abandon()
    await steps()
    assert (provider.calls, w.books.records, w.in_flight) == ([], [], 0)


async def test_a_client_that_leaves_while_the_provider_decides_is_booked() -> None:
    provider = FakeProvider(whole_reply(), accepts=asyncio.Event())
    w = World([provider, FakeProvider(whole_reply())])
    exchange = w.begin()
    await steps()
    exchange.abandon()
    await steps()
    [record] = w.books.booked
    assert (record.cancelled, record.finish_reason) == (True, None)
    assert record.charge.state is CostState.ESTIMATED
    assert record.charge.cost_nano == 0
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_in_the_middle_cancels_the_call_and_is_booked(
    stream: bool,  # noqa: FBT001
) -> None:
    w, reply, _ = leaving(stream=stream)
    exchange = w.begin(stream=stream)
    await steps()
    exchange.abandon()
    await steps()
    assert reply.closed == 1
    [record] = w.books.booked
    assert record.cancelled
    assert record.finish_reason is None
    assert record.charge.state is CostState.ESTIMATED
    assert w.in_flight == 0
    assert w.finished(499) == 1


async def test_a_client_that_leaves_pays_for_what_was_seen() -> None:
    w, _, _ = leaving(stream=True)
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    await steps()
    charge = w.books.booked[0].charge
    assert charge.usage.output_tokens == 2  # "Hello"
    assert charge.cost_nano == charge.provider_cost_nano == cost(charge.usage, PRICE).total_nano


async def test_the_call_is_cancelled_before_the_books_are_asked() -> None:
    w, reply, _ = leaving(stream=True)
    w.books.ready = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    await steps()
    assert (reply.closed, w.books.booked) == (1, [])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_while_its_reply_is_settled_is_booked_once_and_exactly(
    stream: bool,  # noqa: FBT001
) -> None:
    reply = stream_reply() if stream else whole_reply()
    w = world(reply, books=FakeBooks(ready=(ready := asyncio.Event())))
    exchange = w.begin(stream=stream)
    await steps()
    exchange.abandon()
    await steps()
    ready.set()
    await steps()
    assert len(w.books.records) == 1
    assert w.books.booked[0].charge.state is CostState.EXACT
    assert reply.closed == 1
    assert w.in_flight == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_of_a_provider_that_bills_all_the_same_is_read_to_its_end(
    stream: bool,  # noqa: FBT001
) -> None:
    w, reply, rest = leaving(stream=stream, on_disconnect="drain")
    exchange = w.begin(stream=stream)
    await steps()
    exchange.abandon()
    await steps()
    assert (reply.closed, w.books.records) == (0, [])
    rest.set()
    await steps()
    [record] = w.books.booked
    assert record.cancelled
    assert (record.charge.state, record.charge.usage) == (CostState.EXACT, USAGE)
    assert (record.finish_reason, record.charge.cost_nano) == ("stop", COST)
    assert w.in_flight == 0


async def test_a_drained_reply_that_breaks_is_free() -> None:
    w, reply, rest = leaving(stream=True, on_disconnect="drain")
    reply.body.insert(3, CUT)
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    rest.set()
    await steps()
    [record] = w.books.booked
    assert (record.finish_reason, record.charge.cost_nano) == ("error", 0)
    assert (record.charge.provider_cost_nano or 0) > 0


async def test_for_a_client_that_left_no_other_provider_is_asked() -> None:
    first = FakeProvider(UNREACHABLE, on_disconnect="drain", accepts=(accepts := asyncio.Event()))
    second = FakeProvider(whole_reply())
    w = World([first, second])
    exchange = w.begin()
    await steps()
    exchange.abandon()
    accepts.set()
    await steps()
    assert (second.calls, w.books.records, w.in_flight) == ([], [], 0)


async def test_a_drained_reply_larger_than_the_buffer_does_not_wait_for_a_reader() -> None:
    big = replies.chunk({"content": "x" * (2 * HIGH_WATER)})
    reply = FakeReply([big, rest := asyncio.Event(), big, replies.chunk({}, "stop"), replies.DONE])
    w = World([FakeProvider(reply, on_disconnect="drain")])
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    rest.set()
    await steps()
    assert len(w.books.booked) == 1


# The gateway stops


async def test_an_interruption_before_anything_was_sent_is_an_error() -> None:
    w = world(whole_reply())
    exchange = w.begin()
    w.pipeline.interrupt_all()
    assert status_of(await failed(exchange)) == 503
    assert w.books.records == []


async def test_an_interruption_while_the_provider_decides_is_an_error_and_booked() -> None:
    w = World([FakeProvider(whole_reply(), accepts=asyncio.Event())])
    exchange = w.begin()
    await steps()
    w.pipeline.interrupt_all()
    assert (await failed(exchange)).message == "The gateway is stopping."
    [record] = w.books.booked
    assert (record.finish_reason, record.charge.cost_nano) == ("error", 0)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_an_interruption_in_mid_stream_ends_it_legally(times: int) -> None:
    w, reply, _ = leaving(stream=True)
    reply.closing = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    for _ in range(times):
        w.pipeline.interrupt_all()
    reply.closing.set()
    seen = checked(await received(exchange))
    assert (seen.text, seen.last["error"]["code"]) == ("Hello", 503)
    assert len(w.books.records) == 1
    assert reply.closed == 1


async def test_a_second_interruption_while_the_reply_is_closed_changes_nothing() -> None:
    w, reply, _ = leaving(stream=True)
    reply.closing = asyncio.Event()
    exchange = w.begin(stream=True)
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    reply.closing.set()
    assert checked(await received(exchange)).failed
    assert len(w.books.records) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_interruption_during_the_settlement_comes_too_late(stream: bool) -> None:  # noqa: FBT001
    w = world(
        stream_reply() if stream else whole_reply(),
        books=FakeBooks(ready=(ready := asyncio.Event())),
    )
    exchange = w.begin(stream=stream)
    await steps()
    w.pipeline.interrupt_all()
    ready.set()
    reply = await received(exchange)
    assert not checked(reply).failed if stream else json.loads(reply)["usage"]["cost"]
    assert len(w.books.records) == 1


async def test_an_interruption_ends_a_drained_reply_too() -> None:
    w, reply, _ = leaving(stream=True, on_disconnect="drain")
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    w.pipeline.interrupt_all()
    await steps()
    assert (reply.closed, len(w.books.booked), w.in_flight) == (1, 1, 0)


async def test_a_client_that_left_before_the_interruption_is_booked_as_one_that_left() -> None:
    w, _, _ = leaving(stream=True)
    exchange = w.begin(stream=True)
    await steps()
    exchange.abandon()
    w.pipeline.interrupt_all()
    await steps()
    [record] = w.books.booked
    assert (record.cancelled, record.finish_reason) == (True, None)


async def test_a_writer_that_waits_for_a_slow_reader_can_be_interrupted() -> None:
    big = replies.chunk({"content": "x" * (2 * HIGH_WATER)})
    w = world(FakeReply([big, replies.DONE]))
    exchange = w.begin(stream=True)
    await steps()
    w.pipeline.interrupt_all()
    await steps()
    assert checked(await received(exchange)).failed


# A slow reader


async def test_a_slow_reader_stops_the_provider_and_lets_it_go_on() -> None:
    pieces = [replies.chunk({"content": "x" * 65_536}) for _ in range(32)]
    reply = FakeReply([*pieces, replies.chunk({}, "stop"), replies.USAGE_CHUNK, replies.DONE])
    w = world(reply)
    exchange = w.begin(stream=True)
    await steps()
    assert len(reply.read) <= HIGH_WATER // 65_536 + 1
    assert w.books.records == []
    seen = checked(await received(exchange))
    assert len(seen.text) == 32 * 65_536
    assert not seen.failed


# Nothing is left behind


@pytest.mark.parametrize("stream", [False, True])
async def test_a_generation_that_ended_leaves_nothing_for_the_garbage_collector(
    stream: bool,  # noqa: FBT001
) -> None:
    w = world(stream_reply() if stream else whole_reply())
    gc.collect()
    gc.disable()
    try:
        exchange = w.begin(stream=stream)
        [generation] = w.pipeline._running.values()  # noqa: SLF001 - nobody else has it
        alive = weakref.ref(generation)
        del generation
        await received(exchange)
        await steps()
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [UNREACHABLE, CUT, RuntimeError("x")])
async def test_a_failure_is_counted_by_its_status(error: Exception) -> None:
    w = world(error)
    answer: TollhouseError = await failed(w.begin())
    await steps()
    assert w.finished(status_of(answer)) == 1
    assert w.in_flight == 0


async def test_two_replies_of_one_world_are_apart() -> None:
    w = world(whole_reply())
    one, two = w.begin(), w.begin()
    ids = [json.loads(await received(each))["id"] for each in (one, two)]
    assert len(set(ids)) == 2
    assert [each.id for each in w.books.booked] == ids
