"""Passing messages streams through: the client's stream is always legal."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stream_checks.messages import CheckedStream, check_stream
from tests.unit.inference.formats.messages.samples import (
    CHARGE,
    CUT,
    END,
    IDENTITY,
    PING,
    SAID,
    STREAMS,
    USAGE,
    USED,
    add,
    begin,
    event,
    last,
    request,
    start,
    stop,
    without,
)
from tollhouse.inference.formats.adapter import ErrorEvent, MalformedResponse
from tollhouse.inference.formats.messages.passthrough import (
    MessagesPassthroughAdapter,
    MessagesStream,
)
from tollhouse.inference.sse import EventParser
from tollhouse.kernel.errors import Bug


def new_stream() -> MessagesStream:
    return MessagesPassthroughAdapter(request()).open_stream(IDENTITY)


def client_stream(*pieces: bytes) -> bytes:
    """Return a client's complete stream for a provider's bytes and a clean end."""
    parser, stream = EventParser(), new_stream()
    out: list[bytes] = []
    try:
        for piece in pieces:
            out.extend(stream.feed(data) for data in parser.feed(piece))
    except (ErrorEvent, MalformedResponse):
        return b"".join([*out, stream.fail(CUT)])
    if not stream.complete:
        return b"".join([*out, stream.fail(CUT)])
    return b"".join([*out, stream.end(CHARGE)])


def seen(*events: bytes) -> CheckedStream:
    return check_stream(client_stream(b"".join(events)))


def fed(*events: bytes) -> MessagesStream:
    stream = new_stream()
    for data in EventParser().feed(b"".join(events)):
        stream.feed(data)
    return stream


# The client's stream


def test_message_start_has_the_gateways_fields() -> None:
    message = seen(*STREAMS["text"]).message or {}
    ours = {name: message[name] for name in ("id", "model", "provider")}
    assert ours == {"id": "gen-1", "model": "acme/large", "provider": "Acme"}
    assert message["usage"]["input_tokens"] == 10


def test_blocks_and_unknown_events_are_passed_through() -> None:
    got = client_stream(b"".join(STREAMS["server tools"]))
    for each in STREAMS["server tools"][2:-2]:
        assert each in got


def test_optional_fields_of_a_block_are_never_null() -> None:
    block = {"type": "text", "text": "null", "citations": None, "new_field": None}
    events = [event("content_block_start", index=0, content_block=block), stop(0)]
    got = client_stream(b"".join([start(), *events, last(), END]))
    assert b'"content_block":{"type":"text","text":"null","new_field":null}' in got


def test_text_is_streamed_completely() -> None:
    assert seen(*STREAMS["text"]).text == "Hello, wörld"


def test_the_end_has_the_final_usage_and_its_cost() -> None:
    end = seen(start(), *SAID, last(usage={"output_tokens": 9}), END).last or {}
    assert end["usage"]["output_tokens"] == 7
    assert end["usage"]["cache_creation"] == USAGE["cache_creation"]
    assert end["usage"]["cost"] == pytest.approx(24e-9)
    assert end["usage"]["service_tier"] == "standard"


def test_message_deltas_are_merged() -> None:
    end = seen(
        start(),
        last(None, usage={"output_tokens": 1}),
        *SAID,
        last("max_tokens", context_management={"applied_edits": []}),
        event("message_delta", delta={"container": {"id": "c"}}),
        END,
    ).last
    assert end is not None
    assert end["delta"]["stop_reason"] == "max_tokens"
    assert end["delta"]["container"] == {"id": "c"}
    assert end["context_management"] == {"applied_edits": []}


def test_a_ping_before_the_start_is_skipped() -> None:
    got = seen(PING, event("new_event"), start(), PING, last(), END)
    assert [each["type"] for each in got.others] == ["ping"]


def test_a_multi_line_event_is_sent_on_one_line() -> None:
    split = b'event: new_event\ndata: {"type": "new_event",\ndata:  "a": {\ndata: "b": 1}}\n\n'
    assert seen(start(), split, last(), END).others == [{"type": "new_event", "a": {"b": 1}}]


def test_an_unprintable_event_name_is_skipped() -> None:
    assert seen(start(), event("a").replace(b'"a"', rb'"a\n\nb"'), last(), END).others == []


def test_missing_fields_of_message_start_are_filled_in() -> None:
    got = seen(event("message_start", message={}), last(), END)
    assert got.message is not None


@pytest.mark.parametrize("usage", [{"input_tokens": "x"}, {"input_tokens": -1}, 5, None])
def test_an_invalid_usage_at_the_start_is_ignored(usage: Any) -> None:
    message = seen(start(usage=usage), last(), END).message or {}
    assert message["usage"]["input_tokens"] == 0


# Recorded metadata


def test_the_final_usage_overrides_the_initial_one() -> None:
    stream = fed(start(), *SAID, last(usage={"output_tokens": 7, "input_tokens": None}))
    assert stream.reported is not None
    assert stream.reported.input_tokens == USED.input_tokens
    assert stream.reported.cache_write_1h_tokens == USED.cache_write_1h_tokens
    assert stream.reported.output_tokens == 7


def test_an_initial_usage_alone_is_not_reported() -> None:
    stream = fed(start(), *SAID)
    assert stream.reported is None
    assert stream.seen.input_tokens == USED.input_tokens
    assert stream.seen.cache_read_tokens == USED.cache_read_tokens
    assert stream.seen.output_tokens == 4


def test_a_final_usage_without_output_tokens_is_not_reported() -> None:
    assert fed(start(), *SAID, last(usage={"input_tokens": 3})).reported is None


def test_the_stop_reason_and_the_id_are_recorded() -> None:
    stream = fed(start(), last("tool_use"))
    assert (stream.finish_reason, stream.native_finish_reason) == ("tool_calls", "tool_use")
    assert stream.upstream_id == "msg_1"


def test_a_stream_is_done_after_message_stop() -> None:
    assert not fed(start(), last()).done
    assert fed(start(), last(), END).done
    assert fed(start(), last(), END, SAID[0]).done


def test_a_stream_is_complete_after_its_stop_reason() -> None:
    assert not fed(start(), *SAID).complete
    assert not fed(start(), last(None)).complete
    assert fed(start(), last()).complete


@pytest.mark.parametrize("data", [b"", b"[DONE]"])
def test_a_done_marker_is_ignored(data: bytes) -> None:
    stream = new_stream()
    assert stream.feed(data) == b""
    assert not stream.done


# Invalid events


@pytest.mark.parametrize(
    "events",
    [
        [SAID[0]],
        [last()],
        [END],
        [start(), start()],
        [start(), END],
        [start(), last(None), END],
        [start(), begin(1, "text")],
        [start(), begin(0, "text"), begin(1, "text")],
        [start(), add(0, "text_delta", text="a")],
        [start(), begin(0, "text"), add(1, "text_delta", text="a")],
        [start(), begin(0, "text"), add(0, "input_json_delta", partial_json="{}")],
        [start(), begin(0, "redacted_thinking"), add(0, "text_delta", text="a")],
        [start(), begin(0, "text"), stop(1)],
        [start(), *SAID, stop(0)],
        [start(), *SAID, begin(0, "text")],
        [start(), begin(0, "text"), last()],
        [start(), last(), begin(0, "text")],
        [event("message_start")],
        [start(), event("content_block_start", index=0)],
        [start(), begin(0, "text"), event("content_block_delta", index=0)],
    ],
)
def test_events_out_of_order_are_malformed(events: list[bytes]) -> None:
    with pytest.raises(MalformedResponse):
        fed(*events)
    assert seen(*events).error is not None


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"5",
        b"{}",
        b'{"type":5}',
        b'{"type":"message_start","message":5}',
        b'{"type":"message_start","message":{"content":5}}',
        b'{"type":"ping","index":"a"}',
        b'{"type":"ping","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"a\\ud800"}',
    ],
)
def test_invalid_events_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        new_stream().feed(data)


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b'{"type":"error","error":{"type":"api_error","message":"No"}}', "api_error", "No"),
        (b'{"type":"error","error":"No"}', None, "No"),
        (b'{"type":"error","error":5,"message":"x"}', None, None),
        (b'{"error":{"message":"No","code":5}}', None, "No"),
    ],
)
def test_the_providers_error_is_raised(data: bytes, code: str | None, message: str | None) -> None:
    with pytest.raises(ErrorEvent) as caught:
        fed(start(), *SAID).feed(data)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_text_containing_error_is_no_error() -> None:
    text = add(0, "text_delta", text='the field "error"', error=None)
    assert seen(start(), SAID[0], text, stop(0), last(), END).text == 'the field "error"'


# Legality


def test_an_error_may_end_a_stream_at_any_time() -> None:
    assert seen().error is not None
    assert check_stream(new_stream().fail(CUT)).error == {
        "type": "error",
        "error": {
            "type": "api_error",
            "message": "Acme closed the connection.",
            "error_type": "provider_unavailable",
        },
        "request_id": "gen-1",
        "metadata": {"provider_name": "Acme"},
    }


def test_ending_closes_the_open_block() -> None:
    stream = new_stream()
    written = b"".join(stream.feed(without(each)) for each in (start(), *SAID[:3]))
    assert check_stream(written + stream.end(CHARGE)).text == "Hello, "
    assert check_stream(new_stream().end(CHARGE)).message is not None


def test_a_stream_ends_once() -> None:
    stream = new_stream()
    stream.fail(CUT)
    with pytest.raises(Bug):
        stream.end(CHARGE)
    with pytest.raises(Bug):
        stream.fail(CUT)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_cut_after_any_event_is_legal(name: str) -> None:
    events = STREAMS[name]
    for cut in range(len(events) + 1):
        got = seen(*events[:cut])
        assert (got.error is None) == (cut >= len(events) - 1)


@settings(max_examples=40)
@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_the_result_does_not_depend_on_where_the_bytes_were_cut(name: str, data: Any) -> None:
    stream = b"".join(STREAMS[name])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert client_stream(*pieces) == client_stream(stream)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(sorted({e for each in STREAMS.values() for e in each})), max_size=9)
)
def test_any_sequence_of_events_gives_a_legal_stream(events: list[bytes]) -> None:
    assert seen(*events).ended


def test_the_data_of_every_event_is_single_line_json() -> None:
    for each in client_stream(b"".join(STREAMS["thoughts"])).split(b"\n\n")[:-1]:
        assert json.loads(each.split(b"\n")[1].removeprefix(b"data: "))
