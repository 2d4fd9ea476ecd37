"""A provider fails: at first the next one is asked, after the first byte the reply ends legally."""

import asyncio
import json

import pytest

from tests.support.seams.accounting import CostState, cost
from tests.support.seams.inference import Dialect, failure
from tests.support.stream_checks.chat import check_stream
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    MODEL,
    PRICE,
    FakeProvider,
    FakeReply,
    PipelineFixture,
    failed,
    received,
    stream_reply,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import COST, CUT, UNREACHABLE, make_pipeline
from tollhouse.kernel.errors import (
    Bug,
    NotFound,
    ProviderFailure,
    ProviderRefused,
    ProviderTimeout,
    status_of,
)

# Failures before the first byte


@pytest.mark.parametrize("status", [401, 402, 403, 404, 408, 429, 500, 502, 503, 504, 529])
async def test_a_provider_that_failed_is_followed_by_the_next(status: int) -> None:
    w = make_pipeline(failure("Acme", status), whole_reply())
    await received(w.begin())
    [record] = w.settler.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [status, 200]


async def test_a_provider_that_was_never_reached_is_followed_by_the_next() -> None:
    w = make_pipeline(UNREACHABLE, whole_reply())
    await received(w.begin())
    assert [each.status for each in w.settler.booked[0].attempts] == [None, 200]
    assert w.ambiguous == 0


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_request_that_was_refused_is_not_asked_again(status: int) -> None:
    second = FakeProvider(whole_reply())
    w = PipelineFixture([FakeProvider(failure("Acme", status, message="too long")), second])
    error = await failed(w.begin())
    assert isinstance(error, ProviderRefused)
    assert error.message == "Acme refused the request: too long."
    assert second.calls == []
    assert w.settler.records == []


async def test_a_request_that_one_dialect_cannot_say_goes_to_the_next_that_can() -> None:
    recording = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    messages = [{"role": "user", "content": [recording]}]
    deaf = FakeProvider(whole_reply(), dialects=frozenset({Dialect.MESSAGES}))
    w = PipelineFixture([deaf, FakeProvider(whole_reply())])
    await received(w.begin(messages=messages))
    assert deaf.calls == []
    assert [each.status for each in w.settler.booked[0].attempts] == [200]


async def test_a_request_that_no_dialect_can_say_is_refused_and_not_booked() -> None:
    recording = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    deaf = FakeProvider(whole_reply(), dialects=frozenset({Dialect.MESSAGES}))
    w = PipelineFixture([deaf])
    error = await failed(w.begin(messages=[{"role": "user", "content": [recording]}]))
    assert status_of(error) == 400
    assert w.settler.records == []


async def test_a_flagged_request_shows_what_was_said_last() -> None:
    w = make_pipeline(failure("Acme", 400, code="moderation_blocked"))
    error = await failed(w.begin(messages=[{"role": "user", "content": "x" * 200}]))
    assert status_of(error) == 403
    assert error.metadata["reasons"] == ["moderation_blocked"]
    assert len(str(error.metadata["flagged_input"])) <= 100


async def test_a_request_that_may_have_been_worked_on_is_not_asked_again() -> None:
    second = FakeProvider(whole_reply())
    w = PipelineFixture([FakeProvider(CUT), second])
    assert await failed(w.begin()) is CUT
    assert second.calls == []
    assert w.ambiguous == 1


async def test_a_request_that_may_have_been_worked_on_is_booked_without_a_charge() -> None:
    w = make_pipeline(CUT)
    exchange = w.begin()
    await failed(exchange)
    [record] = w.settler.booked
    assert exchange.booked
    assert record.finish_reason == "error"
    assert record.cost_state == CostState.ESTIMATED
    assert record.cost_nano == 0
    assert (record.provider_cost_nano or 0) > 0


async def test_a_request_that_an_idempotent_provider_may_have_worked_on_goes_to_the_next() -> None:
    w = make_pipeline(CUT, whole_reply(), idempotent=True)
    await received(w.begin())
    [record] = w.settler.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [None, 200]
    assert w.ambiguous == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_broke_off_is_not_asked_of_the_next_though_idempotent(
    *, stream: bool
) -> None:
    second = FakeProvider(whole_reply())
    body = [replies.chunk({"content": "a"}), CUT] if stream else [b"{", CUT]
    w = PipelineFixture([FakeProvider(FakeReply(body)), second], idempotent=True)
    exchange = w.begin(stream=stream)
    if stream:
        assert check_stream(await received(exchange)).failed
    else:
        assert await failed(exchange) is CUT
    assert second.calls == []


async def test_work_that_an_earlier_provider_may_have_done_is_booked_after_all_failed() -> None:
    w = make_pipeline(CUT, failure("Beta", 500), idempotent=True)
    await failed(w.begin())
    [record] = w.settler.booked
    assert [each.status for each in record.attempts] == [None, 500]
    assert record.cost_nano == 0


@pytest.mark.parametrize("error", [UNREACHABLE, failure("Acme", 429), failure("Acme", 400)])
async def test_a_request_that_nobody_worked_on_is_not_booked(error: ProviderFailure) -> None:
    w = make_pipeline(error)
    assert await failed(w.begin()) is error
    assert w.settler.records == []


async def test_after_all_failed_the_last_error_is_the_answer() -> None:
    last = failure("Beta", 500)
    assert await failed(make_pipeline(failure("Acme", 429), UNREACHABLE, last).begin()) is last


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
    assert (await failed(make_pipeline(*errors).begin())).retry_after == answer


async def test_an_unexpected_error_of_a_provider_shows_nothing() -> None:
    w = make_pipeline(RuntimeError("the secret is 42"))
    error = await failed(w.begin())
    assert isinstance(error, Bug)
    assert "42" not in error.message


@pytest.mark.parametrize("code", [429, "rate_limited"])
async def test_an_error_under_a_success_status_is_the_providers_error(code: object) -> None:
    body = json.dumps({"error": {"message": "slow down", "code": code}}).encode()
    w = make_pipeline(FakeReply([body]))
    error = await failed(w.begin())
    assert isinstance(error, ProviderFailure)
    assert error.provider_code == code
    assert status_of(error) == (429 if code == 429 else 502)
    assert len(w.settler.booked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices":[]}'])
async def test_a_whole_reply_of_garbage_is_a_502_that_names_the_provider(body: bytes) -> None:
    error = await failed(make_pipeline(FakeReply([body])).begin())
    assert status_of(error) == 502
    assert error.metadata["provider_name"] == "Acme"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_breaks_before_its_first_byte_is_an_error(stream: bool) -> None:  # noqa: FBT001
    w = make_pipeline(FakeReply([ProviderTimeout("late", provider_name="Acme", ambiguous=True)]))
    assert status_of(await failed(w.begin(stream=stream))) == 504
    assert len(w.settler.booked) == 1


@pytest.mark.parametrize("name", ["no done", "text"])
async def test_a_stream_that_ends_before_its_first_chunk_is_a_502(name: str) -> None:
    reply = stream_reply(name)
    reply.body = [b": only a comment\n\n"]
    assert status_of(await failed(make_pipeline(reply).begin(stream=True))) == 502


async def test_a_failure_of_an_accepted_request_is_booked_even_if_it_looks_unsent() -> None:
    w = make_pipeline(FakeReply([UNREACHABLE]))
    await failed(w.begin())
    assert len(w.settler.booked) == 1


# Failures in mid-stream


async def test_a_stream_that_breaks_ends_with_an_error_and_is_free() -> None:
    w = make_pipeline(FakeReply([replies.chunk({"content": "Hello, hello"}), CUT]))
    seen = check_stream(await received(w.begin(stream=True)))
    assert seen.text == "Hello, hello"
    assert seen.last["error"]["message"] == "Acme closed the connection."
    [record] = w.settler.booked
    assert record.finish_reason == "error"
    assert record.cost_state == CostState.ESTIMATED
    assert record.usage.output_tokens == 3
    assert record.cost_nano == 0
    assert record.provider_cost_nano == cost(record.usage, PRICE).total_nano > 0


@pytest.mark.parametrize(
    ("piece", "code", "kind"),
    [
        (b"data: garbage\n\n", 502, "provider_unavailable"),
        (replies.event({"error": {"message": "x", "code": 500}}), 502, "provider_unavailable"),
        (replies.event({"error": "x"}), 502, "provider_unavailable"),
        (replies.event({"error": {"message": "x", "code": 429}}), 429, "rate_limit_exceeded"),
    ],
)
async def test_a_stream_that_goes_wrong_ends_with_an_error(
    piece: bytes, code: int, kind: str
) -> None:
    w = make_pipeline(FakeReply([replies.chunk({"content": "a"}), piece, replies.DONE]))
    seen = check_stream(await received(w.begin(stream=True)))
    assert (seen.text, seen.failed) == ("a", True)
    assert seen.last["error"]["code"] == code
    assert seen.last["error"]["metadata"]["error_type"] == kind


async def test_what_came_in_one_piece_with_an_error_is_passed_on_before_it() -> None:
    piece = replies.chunk({"content": "a"}) + replies.chunk({"content": "b"})
    error = replies.event({"error": {"message": "x", "code": 500}})
    w = make_pipeline(FakeReply([piece + error]))
    seen = check_stream(await received(w.begin(stream=True)))
    assert (seen.text, seen.failed) == ("ab", True)


async def test_a_stream_without_done_that_finished_is_whole() -> None:
    w = make_pipeline(stream_reply("no done"))
    assert not check_stream(await received(w.begin(stream=True))).failed


async def test_a_stream_that_broke_after_its_usage_is_booked_from_it() -> None:
    reply = FakeReply([replies.chunk({"content": "a"}), replies.USAGE_CHUNK, CUT])
    w = make_pipeline(reply)
    assert check_stream(await received(w.begin(stream=True))).failed
    record = w.settler.booked[0]
    assert (record.cost_state, record.cost_nano, record.provider_cost_nano) == (
        CostState.EXACT,
        0,
        COST,
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_cannot_be_closed_is_booked_all_the_same(stream: bool) -> None:  # noqa: FBT001
    reply = FakeReply([CUT], closing=OSError("already closed"))
    w = make_pipeline(reply)
    assert await failed(w.begin(stream=stream)) is CUT
    assert len(w.settler.booked) == 1


# What nobody speaks


async def test_a_model_that_speaks_nothing_that_would_do_is_not_asked() -> None:
    provider = FakeProvider(whole_reply(), dialects=frozenset({Dialect.EMBEDDINGS}))
    w = PipelineFixture([provider])
    error = await failed(w.begin())
    assert isinstance(error, NotFound)
    assert MODEL in error.message
    assert provider.calls == []
    assert w.settler.booked == []


async def test_an_endpoint_that_speaks_nothing_that_would_do_is_passed_over() -> None:
    first = FakeProvider(whole_reply(), dialects=frozenset({Dialect.EMBEDDINGS}))
    second = FakeProvider(whole_reply())
    w = PipelineFixture([first, second])
    await received(w.begin())
    assert first.calls == []
    assert [call.dialect for call in second.calls] == [Dialect.CHAT]


@pytest.mark.parametrize(
    ("error", "code"),
    [(UNREACHABLE, 502), (failure("Acme", 500), 502), (failure("Acme", 429, retry_after=3), 429)],
)
async def test_a_failure_after_a_comment_is_told_in_the_stream(
    error: ProviderFailure, code: int
) -> None:
    accepts = asyncio.Event()
    w = PipelineFixture([FakeProvider(error, accepts=accepts)])
    exchange = w.begin(stream=True)
    exchange.keep_alive(0.001, b": beat\n\n")
    beat = await exchange.read()
    accepts.set()
    rest = (await received(exchange)).replace(b": beat\n\n", b"")
    assert beat.startswith(b": beat")
    assert check_stream(rest).last["error"]["code"] == code
