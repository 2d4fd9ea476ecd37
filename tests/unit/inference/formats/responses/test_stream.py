"""Passing responses streams through."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stream_checks.responses import (
    CheckedStream,
    check_stream,
)
from tests.unit.inference.formats.responses.provider import (
    CREATED,
    DONE,
    IN_PROGRESS,
    MESSAGE,
    STREAMS,
    completed,
    event,
    message_events,
    response,
    stream_of,
)
from tests.unit.inference.formats.responses.response_fixtures import (
    CUT,
    IDENTITY,
    USAGE,
    charge,
    relayed,
    request,
)
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.responses.passthrough import (
    ResponsesPassthroughAdapter,
    ResponsesStream,
)
from tollhouse.inference.sse import EventParser
from tollhouse.kernel.errors import Bug, Invalid


def new_stream() -> ResponsesStream:
    return ResponsesPassthroughAdapter(request()).open_stream(IDENTITY)


def seen(*events: bytes) -> CheckedStream:
    return check_stream(relayed(new_stream(), b"".join(events)))


def fed(*events: bytes) -> ResponsesStream:
    stream = new_stream()
    for data in EventParser().feed(b"".join(events)):
        stream.feed(data)
    return stream


def data_of(raw: bytes) -> dict[str, Any]:
    return json.loads(raw.split(b"data: ", 1)[1])


# The client's stream


@pytest.mark.parametrize("name", STREAMS)
def test_events_are_forwarded_with_only_the_gateways_fields_changed(name: str) -> None:
    stream = seen(*STREAMS[name], DONE)
    assert not stream.failed
    given = [data_of(each) for each in STREAMS[name]]
    assert [each["type"] for each in stream.events] == [each["type"] for each in given]
    for ours, theirs in zip(stream.events, given, strict=True):
        same = theirs.keys() - {"sequence_number", "response"}
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}


def test_a_response_within_an_event_gets_only_the_gateways_id_and_model() -> None:
    shown = seen(*STREAMS["text"]).response
    given = response(MESSAGE)
    assert (shown["id"], shown["model"]) == ("gen-1", "acme/large")
    same = given.keys() - {"id", "model", "usage"}
    assert {name: shown[name] for name in same} == {name: given[name] for name in same}
    assert shown["usage"]["cost"] is not None


def test_the_terminal_event_is_held_back_for_the_cost() -> None:
    stream = fed(*STREAMS["text"][:-1])
    assert not stream.done
    assert stream.feed(json.dumps(data_of(STREAMS["text"][-1])).encode()) == b""
    assert stream.done
    assert stream.end(charge()).startswith(b"event: response.completed\n")


def test_an_incomplete_response_ends_as_incomplete() -> None:
    end = event(
        "response.incomplete",
        response=response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    )
    stream = fed(CREATED, end)
    assert (stream.finish_reason, stream.native_finish_reason) == ("length", "max_output_tokens")
    assert seen(CREATED, end).types == ["created", "incomplete"]


def test_fields_that_clients_require_are_filled_in() -> None:
    call = seen(*stream_of("call"))
    (done,) = [each for each in call.events if each["type"].endswith("arguments.done")]
    assert done["name"] == "get_weather"
    text = seen(*stream_of("text"))
    assert all("logprobs" in each for each in text.events if "output_text" in each["type"])


def test_an_open_item_is_ended_from_the_terminal_event() -> None:
    events = [*message_events()[:-1], completed(MESSAGE)]
    assert seen(CREATED, *events).types[-2:] == ["output_item.done", "completed"]


def test_unknown_events_are_passed_through() -> None:
    novelty = event("response.novelty", output_index=9, delta={"a": 1})
    assert "novelty" in seen(CREATED, event("keepalive"), novelty, completed()).types


# Recorded metadata


def test_the_usage_and_the_finish_reason_are_recorded() -> None:
    stream = fed(*STREAMS["reasoning, two calls"])
    assert (stream.finish_reason, stream.native_finish_reason) == ("tool_calls", "completed")
    assert (stream.upstream_id, stream.reported) == ("resp_1", USAGE)
    assert fed(*stream_of("search")).finish_reason == "stop"


def test_the_tokens_seen_are_estimated_from_the_deltas() -> None:
    assert fed(CREATED).seen.output_tokens == 0
    assert fed(*STREAMS["text"]).seen.output_tokens > 0


def test_a_stream_is_complete_only_after_its_terminal_event() -> None:
    assert not fed(*STREAMS["text"][:-1], DONE).complete
    assert fed(*STREAMS["text"]).complete


# Failures


@pytest.mark.parametrize(
    "failure",
    [
        event("error", code="rate_limit_exceeded", message="Slow."),
        event(
            "response.failed",
            response=response(
                status="failed", error={"code": "rate_limit_exceeded", "message": "Slow."}
            ),
        ),
        b'data: {"error":{"code":"rate_limit_exceeded","message":"Slow."}}\n\n',
    ],
)
@pytest.mark.parametrize("before", [[], [CREATED, IN_PROGRESS], STREAMS["text"][:5]])
def test_the_providers_error_is_raised(before: list[bytes], failure: bytes) -> None:
    with pytest.raises(ErrorEvent) as raised:
        fed(*before, failure)
    assert (raised.value.code, raised.value.message) == ("rate_limit_exceeded", "Slow.")
    assert seen(*before, failure).failed


AT = {"output_index": 0, "item_id": "msg_1", "content_index": 0}


@pytest.mark.parametrize(
    "wrong",
    [
        [IN_PROGRESS],
        [CREATED, CREATED],
        [CREATED, event("response.output_text.delta", **AT, delta="a")],
        [CREATED, message_events()[0], event("response.output_text.delta", **AT, delta="a")],
        [CREATED, message_events()[0], message_events()[0]],
        [CREATED, *message_events(), event("response.content_part.added", **AT, part={})],
        [CREATED, event("response.output_item.done", output_index=0, item=MESSAGE)],
        [CREATED, message_events()[0], completed()],
        [CREATED, event("response.completed")],
        [CREATED, event("response.completed", response=[])],
        [CREATED, event("response.in_progress", response=5)],
        [CREATED, event("response.output_item.added", item=MESSAGE)],
        [CREATED, event("response.output_item.added", output_index=None, item=MESSAGE)],
        [b"data: {}\n\n"],
        [b"data: no json\n\n"],
        [b"data: " + b"[" * 100_000 + b"\n\n"],
    ],
)
def test_events_out_of_order_are_malformed_and_the_client_gets_a_legal_end(
    wrong: list[bytes],
) -> None:
    with pytest.raises(MalformedResponse):
        fed(*wrong)
    assert seen(*wrong).failed


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_anywhere_is_legal_for_the_client(name: str) -> None:
    for cut in range(len(STREAMS[name])):
        assert seen(*STREAMS[name][:cut]).failed


@settings(max_examples=60)
@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_damaged_stream_is_legal_for_the_client(name: str, data: st.DataObject) -> None:
    events = list(STREAMS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(events) - 1))
        other = data.draw(st.sampled_from([*STREAMS["text"], *STREAMS["reasoning, two calls"]]))
        events = data.draw(
            st.sampled_from(
                [
                    [*events[:at], *events[at + 1 :]] or [other],
                    [*events[:at], events[at], *events[at:]],
                    [*events[:at], other, *events[at + 1 :]],
                ]
            )
        )
    relayed_stream = relayed(new_stream(), *events)
    frames = relayed_stream.split(b"\n\n")
    kinds = [json.loads(frame.split(b"data: ")[1])["type"] for frame in frames[:-2]]
    assert kinds[0] == "response.created"
    assert frames[-2:] == [b"data: [DONE]", b""]
    assert [kind for kind in kinds if kind.rpartition(".")[2] in {"completed", "failed"}] == [
        kinds[-1]
    ]


def test_a_failure_before_the_first_event_is_a_legal_stream() -> None:
    assert check_stream(new_stream().fail(CUT)).types == ["created", "failed"]


def test_a_failed_response_describes_the_error() -> None:
    shown = check_stream(fed_and_failed(CREATED)).response
    assert shown["error"] == {"code": "server_error", "message": "Acme closed the connection."}
    assert shown["error_type"] == "provider_unavailable"
    assert shown["novelty"] == {"kept": True}


def fed_and_failed(*events: bytes) -> bytes:
    stream = new_stream()
    out = [stream.feed(data) for data in EventParser().feed(b"".join(events))]
    return b"".join([*out, stream.fail(CUT)])


def test_a_stream_ends_once() -> None:
    stream = fed(*STREAMS["text"])
    stream.end(charge())
    with pytest.raises(Bug):
        stream.fail(Invalid("no"))
    with pytest.raises(Bug):
        fed(CREATED).end(charge())


def test_invalid_utf8_is_replaced() -> None:
    events = b"".join(STREAMS["text"]).replace(b"Hello!", b"Hel\xfflo!")
    assert "\N{REPLACEMENT CHARACTER}" in str(relayed(new_stream(), events), "utf-8")


def test_chunk_boundaries_do_not_change_the_stream() -> None:
    whole = b"".join(STREAMS["text"])
    pieces = [whole[at : at + 7] for at in range(0, len(whole), 7)]
    assert relayed(new_stream(), *pieces) == relayed(new_stream(), whole)
