"""A provider fails: at first the next one is asked, after the first byte the reply ends legally."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.seams.accounting import CostState
from tests.support.seams.inference import Dialect, failure
from tests.support.stream_checks import responses as response_streams
from tests.support.stream_checks.chat import check_stream
from tests.support.tables import tables
from tests.unit.inference import replies
from tests.unit.inference.fakes import (
    MODEL,
    FakeProvider,
    FakeReply,
    PipelineFixture,
    failed,
    outcome,
    received,
    steps,
    whole_reply,
)
from tests.unit.inference.generation.pipeline_fixtures import (
    COST,
    CUT,
    STREAMED,
    UNREACHABLE,
    make_pipeline,
)
from tollhouse.kernel.errors import (
    Bug,
    NotFound,
    ProviderFailure,
    ProviderRefused,
    ProviderTimeout,
    TollhouseError,
    status_of,
)

CASES = tables(__file__)

LATE = ProviderTimeout("late", provider_name="Acme", ambiguous=True)
UNWORKED = [(UNREACHABLE, None), *((failure("Acme", each), each) for each in (401, 402, 403, 404))]
UNWORKED += [(failure("Acme", each), each) for each in (408, 429, 500, 502, 503, 504, 529)]

# Failures before the first byte


@pytest.mark.parametrize(("error", "status"), UNWORKED)
async def test_a_provider_that_did_no_work_is_followed_by_the_next(
    error: ProviderFailure, status: int | None
) -> None:
    w = make_pipeline(error, whole_reply())
    await received(w.begin())
    [record] = w.settler.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [status, 200]
    assert w.ambiguous == 0
    alone = make_pipeline(error)
    assert await failed(alone.begin()) is error
    assert (alone.settler.records, alone.finished(status_of(error))) == ([], 1)


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_request_that_was_refused_is_not_asked_again(status: int) -> None:
    w = make_pipeline(failure("Acme", status, message="too long"), whole_reply())
    error = await failed(w.begin())
    assert isinstance(error, ProviderRefused)
    assert error.message == "Acme refused the request: too long."
    assert (w.providers[1].calls, w.settler.records) == ([], [])


@STREAMED
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (CUT, 502),
        (FakeReply([CUT], closing=OSError("already closed")), 502),
        (FakeReply([LATE]), 504),
        (FakeReply([UNREACHABLE]), 502),  # it looks unsent, and was accepted
        (FakeReply([b""]), 502),
        (FakeReply([b"<html>"]), 502),
        (FakeReply([b'{"choices":[]}']), 502),
        (FakeReply([b": only a comment\n\n"]), 502),
    ],
)
async def test_what_may_have_been_worked_on_is_not_asked_again_and_booked_without_a_charge(
    answer: Any, status: int, *, stream: bool
) -> None:
    w = make_pipeline(answer, whole_reply())
    exchange = w.begin(stream=stream)
    error = await failed(exchange)
    assert (status_of(error), error.metadata["provider_name"]) == (status, "Acme")
    [record] = w.settler.booked
    assert exchange.booked
    assert (record.finish_reason, record.cost_nano) == ("error", 0)
    assert (record.cost_state, (record.provider_cost_nano or 0) > 0) == (CostState.ESTIMATED, True)
    assert (w.providers[1].calls, w.ambiguous) == ([], int(answer is CUT))
    await steps()
    assert (w.finished(status), w.in_flight, bool(w.admission.holding)) == (1, 0, False)


async def test_a_request_that_an_idempotent_provider_may_have_worked_on_goes_to_the_next() -> None:
    w = make_pipeline(CUT, whole_reply(), idempotent=True)
    await received(w.begin())
    [record] = w.settler.booked
    assert record.provider_model == "p1-model"
    assert [each.status for each in record.attempts] == [None, 200]
    assert w.ambiguous == 1


@STREAMED
async def test_a_reply_that_broke_off_is_not_asked_of_the_next_though_idempotent(
    *, stream: bool
) -> None:
    body = [replies.chunk({"content": "a"}), CUT] if stream else [b"{", CUT]
    w = make_pipeline(FakeReply(body), whole_reply(), idempotent=True)
    said = await outcome(w.begin(stream=stream))
    assert said is CUT if isinstance(said, TollhouseError) else check_stream(said).failed
    assert w.providers[1].calls == []


async def test_work_that_an_earlier_provider_may_have_done_is_booked_after_all_failed() -> None:
    w = make_pipeline(CUT, failure("Beta", 500), idempotent=True)
    await failed(w.begin())
    [record] = w.settler.booked
    assert [each.status for each in record.attempts] == [None, 500]
    assert record.cost_nano == 0


@pytest.mark.parametrize(
    ("hints", "answer"), CASES["retry_after_is_the_smallest_hint_of_a_429_or_503_if_all_gave_one"]
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
    await steps()
    assert (w.finished(500), bool(w.admission.holding)) == (1, False)


async def test_a_request_that_is_refused_under_a_success_status_is_not_asked_again() -> None:
    told = json.dumps({"error": {"message": "prompt is too long", "code": 400}}).encode()
    w = make_pipeline(FakeReply([told]), whole_reply())
    error = await failed(w.begin())
    assert error.code == "context_length_exceeded"
    assert w.providers[1].calls == []


async def test_a_flagged_request_shows_what_was_said_last() -> None:
    w = make_pipeline(failure("Acme", 400, code="moderation_blocked"))
    error = await failed(w.begin(messages=[{"role": "user", "content": "x" * 200}]))
    assert status_of(error) == 403
    assert error.metadata["reasons"] == ["moderation_blocked"]
    assert len(str(error.metadata["flagged_input"])) <= 100


# What a dialect cannot say

RECORDING = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
HEARD = [{"role": "user", "content": [RECORDING]}]
READ = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("dialect", "messages", "status"),
    [(Dialect.MESSAGES, HEARD, 400), (Dialect.EMBEDDINGS, READ, 404)],
)
async def test_an_endpoint_that_cannot_say_it_is_passed_over(
    dialect: Dialect, messages: Any, status: int
) -> None:
    deaf = FakeProvider(whole_reply(), dialects=frozenset({dialect}))
    w = PipelineFixture([deaf, FakeProvider(whole_reply())])
    await received(w.begin(messages=messages))
    assert [each.status for each in w.settler.booked[0].attempts] == [200]
    assert [call.dialect for call in w.providers[1].calls] == [Dialect.CHAT]
    alone = PipelineFixture([deaf])
    error = await failed(alone.begin(messages=messages))
    assert status_of(error) == status
    assert MODEL in error.message or not isinstance(error, NotFound)
    assert (deaf.calls, alone.settler.records) == ([], [])


# Failures in mid-stream


async def test_a_stream_that_broke_after_its_usage_is_booked_from_it() -> None:
    w = make_pipeline(FakeReply([replies.chunk({"content": "a"}), replies.USAGE_CHUNK, CUT]))
    assert check_stream(await received(w.begin(stream=True))).failed
    [record] = w.settler.booked
    assert record.cost_state == CostState.EXACT
    assert (record.cost_nano, record.provider_cost_nano) == (0, COST)


FAILED = replies.event({"error": {"message": "x", "code": 500}})


@pytest.mark.parametrize(
    ("piece", "code", "kind"),
    [
        (b"data: garbage\n\n", 502, "provider_unavailable"),
        (FAILED, 502, "provider_unavailable"),
        (replies.event({"error": "x"}), 502, "provider_unavailable"),
        (replies.event({"error": {"message": "x", "code": 429}}), 429, "rate_limit_exceeded"),
    ],
)
@pytest.mark.parametrize("apart", [True, False], ids=["two pieces", "one piece"])
async def test_a_stream_that_goes_wrong_ends_with_an_error(
    piece: bytes, code: int, kind: str, *, apart: bool
) -> None:
    said = replies.chunk({"content": "a"})
    w = make_pipeline(FakeReply([said, piece, replies.DONE] if apart else [said + piece]))
    seen = check_stream(await received(w.begin(stream=True)))
    assert (seen.text, seen.failed) == ("a", True)
    assert seen.last["error"]["code"] == code
    assert seen.last["error"]["metadata"]["error_type"] == kind


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


# A prompt that is longer than its model's context, in the words that clients look for

WORDS = "prompt is too long: 9 tokens > 8 maximum"
TOO_LONG = failure("Acme", 400, message="maximum context length is 8 tokens, you requested 9")
TOO_LONG_IN_STREAM = replies.event({"error": {"code": "context_length_exceeded", "message": WORDS}})


@STREAMED
@pytest.mark.parametrize("form", ["/chat/completions", "/responses"])
async def test_a_full_context_is_refused(form: str, *, stream: bool) -> None:
    said = await outcome(make_pipeline(TOO_LONG).ask(form, stream=stream))
    if isinstance(said, TollhouseError):
        assert isinstance(said, ProviderRefused)
        assert said.message.startswith(WORDS)
    assert isinstance(said, TollhouseError) or (form, stream) == ("/responses", True)


async def test_a_chat_that_streams_says_that_its_context_is_full() -> None:
    w = make_pipeline(FakeReply([replies.chunk({"content": "a"}), TOO_LONG_IN_STREAM]))
    assert WORDS in (await received(w.begin(stream=True))).decode()


@pytest.mark.parametrize("reply", [TOO_LONG, FakeReply([TOO_LONG_IN_STREAM])])
async def test_a_streamed_response_has_failed_with_openais_code(reply: Any) -> None:
    """Codex looks for it there alone, also where the provider refused before it streamed."""
    said = await received(make_pipeline(reply).ask("/responses", stream=True))
    error = response_streams.check_stream(said).response["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith(WORDS)
