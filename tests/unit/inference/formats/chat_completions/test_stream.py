import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.stream_checks.chat import CheckedStream, check_stream
from tests.unit.inference import replies
from tests.unit.inference.replies import DONE, ROLE, STREAMS, USAGE, USAGE_CHUNK, chunk, event
from tollhouse.accounting.pricing import charge_for
from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.chat_completions.passthrough import (
    ChatPassthroughAdapter,
    ChatStream,
    MalformedResponse,
)
from tollhouse.inference.formats.chat_completions.wire import ErrorEvent, parse_request
from tollhouse.inference.providers.simulated.models import BEHAVIOURS
from tollhouse.inference.sse import EventParser
from tollhouse.inference.types import ReplyIdentity
from tollhouse.kernel.errors import Bug, ProviderUnavailable

REQUEST = parse_request(b'{"model":"acme/large","messages":[{"role":"user","content":"hello"}]}')
IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
PRICE = BEHAVIOURS["echo"].price
SILENT: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": None, "logprobs": None}
CUT = ProviderUnavailable("Acme closed the connection.", provider_name="Acme", ambiguous=True)


def new_stream() -> ChatStream:
    return ChatStream(IDENTITY, REQUEST)


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
    return b"".join([*out, stream.end(charge(stream))])


def charge(stream: ChatStream) -> Any:
    return charge_for(
        stream.reported,
        stream.seen,
        PRICE,
        finish_reason=stream.finish_reason,
        broken_off=False,
    )


def seen(*events: bytes) -> CheckedStream:
    return check_stream(client_stream(b"".join(events)))


def fed(*events: bytes) -> ChatStream:
    stream = new_stream()
    for data in EventParser().feed(b"".join(events)):
        stream.feed(data)
    return stream


# The client's stream


def test_every_chunk_has_the_gateways_fields() -> None:
    stream = seen(STREAMS["text"])
    for each in [*stream.chunks, stream.last]:
        assert {name: each[name] for name in ("id", "object", "created", "model", "provider")} == {
            "id": "gen-1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "acme/large",
            "provider": "Acme",
        }


def test_other_fields_of_a_chunk_are_the_providers() -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.1}]}
    event = chunk({"content": "a", "x": [1]}, service_tier="flex", obfuscation="AbC", big=10**40)
    event = event.replace(b'"logprobs":null', b'"logprobs":' + json.dumps(logprobs).encode())
    got = seen(event, chunk({}, "stop"), DONE).chunks[0]
    assert (got["service_tier"], got["obfuscation"], got["big"]) == ("flex", "AbC", 10**40)
    assert got["choices"][0]["delta"] == {"content": "a", "x": [1]}
    assert got["choices"][0]["logprobs"] == logprobs


def test_an_unfinished_choice_keeps_its_bytes() -> None:
    choices = b'[ {"index":0,"delta":{"content":"\\u0041"},"finish_reason":null , "x":1e999} ]'
    out = new_stream().feed(b'{"choices":%s}' % choices)
    assert b'"choices":' + choices in out


def test_usage_is_sent_once_at_the_end_with_its_cost() -> None:
    usage = seen(STREAMS["text"]).last["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (19, 10)
    assert usage["cost"] == 0.0000354


@pytest.mark.parametrize(
    ("asked", "choices"),
    [
        ({}, [SILENT]),
        ({"stream_options": {"include_usage": False}}, [SILENT]),
        ({"stream_options": None, "usage": "x"}, [SILENT]),
        ({"stream_options": {"include_usage": True}}, []),
        ({"usage": {"include": True}}, []),
    ],
)
def test_the_usage_chunk_has_no_choices_only_if_usage_was_requested(
    asked: dict[str, Any], choices: list[Any]
) -> None:
    """OpenAI's clients accept such a chunk, others read the first choice of every chunk."""
    request = parse_request(json.dumps({"model": "a", "messages": [{}], **asked}).encode())
    stream = ChatStream(IDENTITY, request)
    out = stream.feed(chunk({}, "stop").removeprefix(b"data: "))
    last = check_stream(out + stream.end(charge(stream))).last
    assert (last["choices"], last["usage"]["total_tokens"] > 0) == (choices, True)


def test_the_last_of_several_usages_counts() -> None:
    assert fed(STREAMS["usage twice"]).reported == Usage(
        input_tokens=15, cache_read_tokens=4, output_tokens=10, reasoning_tokens=3
    )


def test_a_null_usage_does_not_reset_a_reported_one() -> None:
    stream = fed(chunk({}, "stop", usage=USAGE), chunk(None, usage=None))
    assert stream.reported is not None


def test_without_usage_the_cost_is_null() -> None:
    usage = seen(STREAMS["no usage"]).last["usage"]
    assert usage["cost"] is None
    assert "cost_details" not in usage


def test_a_usage_of_zero_costs_nothing() -> None:
    zero = {"prompt_tokens": 0, "completion_tokens": 0}
    assert seen(chunk({}, "stop"), chunk(None, usage=zero), DONE).last["usage"]["cost"] == 0.0


THOUGHT = {"type": "reasoning.text", "text": "Hm", "signature": None, "id": None, "format": None}
SPREAD = {"reasoning": "Hm", "reasoning_details": [{**THOUGHT, "index": 0}]}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_in_every_field_that_clients_read(field: str) -> None:
    said = {"role": "assistant", "content": None, field: "Hm"}
    (streamed,) = seen(chunk(said), chunk({}, "stop"), DONE).chunks[0]["choices"]
    assert streamed["delta"] == {**said, **SPREAD}
    body = json.dumps(replies.whole(choices=[replies.choice(None, **{field: "Hm"})])).encode()
    whole = json.loads(
        ChatPassthroughAdapter(REQUEST).parse_response(body).render(IDENTITY, charge(new_stream()))
    )
    message = whole["choices"][0]["message"]
    assert {name: message[name] for name in (*SPREAD, field)} == {field: "Hm", **SPREAD}


def test_the_providers_reasoning_details_are_kept() -> None:
    details = [{"type": "reasoning.encrypted", "data": "abc"}]
    said = chunk({"reasoning_content": "Hm", "reasoning_details": details})
    delta = seen(said, chunk({}, "stop"), DONE).chunks[0]["choices"][0]["delta"]
    assert delta["reasoning_details"] == details
    assert delta["reasoning"] == "Hm"


def test_an_event_with_complete_reasoning_fields_keeps_its_bytes() -> None:
    choices = b'[ {"index":0,"delta":{"reasoning":"\\u0041","reasoning_details":[ ]}} ]'
    choices = choices.replace(b"}} ]", b'},"finish_reason":null} ]')
    assert b'"choices":' + choices in new_stream().feed(b'{"choices":%s}' % choices)


def test_a_null_fingerprint_is_left_out() -> None:
    assert all(
        "system_fingerprint" not in each for each in seen(*[STREAMS["fingerprint null"]]).chunks
    )


def test_a_fingerprint_is_passed_through() -> None:
    assert seen(STREAMS["text"]).chunks[0]["system_fingerprint"] == "fp_44709d6fcb"


def test_fields_that_clients_require_are_filled_in() -> None:
    choices = [each["choices"][0] for each in seen(STREAMS["fields left out"]).chunks]
    assert [choice["index"] for choice in choices] == [0, 0, 0]
    assert [choice["delta"] for choice in choices] == [{"content": "a"}, {"content": "b"}, {}]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "stop"]


def test_a_missing_finish_reason_is_filled_in_beside_a_finished_choice() -> None:
    both: dict[str, Any] = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": None}, {"delta": {}}]
    }
    end: dict[str, Any] = {
        "choices": [{"index": index, "delta": {}, "finish_reason": "stop"} for index in (0, 1)]
    }
    choices = seen(replies.event(both), replies.event(end), DONE).chunks[0]["choices"]
    assert [(choice["index"], choice["finish_reason"]) for choice in choices] == [
        (0, None),
        (1, None),
    ]


def test_a_finish_reason_is_normalized_and_the_native_one_kept() -> None:
    choice = seen(chunk({}, "function_call"), DONE).chunks[0]["choices"][0]
    assert (choice["finish_reason"], choice["native_finish_reason"]) == (
        "tool_calls",
        "function_call",
    )


def test_the_providers_own_native_finish_reason_is_kept() -> None:
    choice: dict[str, Any] = {
        "index": 0,
        "delta": {},
        "finish_reason": "stop",
        "native_finish_reason": "STOP",
    }
    got = seen(replies.event({"choices": [choice]}), DONE).chunks[0]["choices"][0]
    assert got["native_finish_reason"] == "STOP"


def test_content_parts_are_passed_through() -> None:
    first = seen(STREAMS["content in parts"]).chunks[0]["choices"][0]["delta"]["content"]
    assert first[0]["type"] == "thinking"


def test_invalid_utf8_is_replaced() -> None:
    event = chunk({"content": "a?"}, x="?").replace(b"?", b"\xe6\xbc")
    got = seen(event, chunk({}, "stop"), DONE).chunks[0]
    assert got["choices"][0]["delta"]["content"] == "a\N{REPLACEMENT CHARACTER}"
    assert got["x"] == "\N{REPLACEMENT CHARACTER}"


def test_chunks_without_choices_are_not_passed_on() -> None:
    azure = chunk(None, prompt_filter_results=[{"prompt_index": 0}])
    assert len(seen(azure, chunk({}, "stop"), DONE).chunks) == 1


def test_an_empty_event_is_skipped() -> None:
    assert len(seen(b"data:\n\n", chunk({}, "stop"), b"data\n\n", DONE).chunks) == 1


def test_nothing_is_forwarded_after_done() -> None:
    stream = fed(chunk({}, "stop"), DONE)
    assert stream.feed(b'{"choices":[{"index":0,"delta":{"content":"late"}}]}') == b""
    assert stream.feed(b"garbage") == b""
    assert stream.reported is None


def test_a_usage_after_done_is_ignored() -> None:
    assert fed(chunk({}, "stop"), DONE, USAGE_CHUNK).reported is None


def test_a_stream_cannot_be_ended_twice() -> None:
    stream = fed(STREAMS["text"])
    stream.end(charge(stream))
    with pytest.raises(Bug):
        stream.end(charge(stream))
    with pytest.raises(Bug):
        stream.fail(CUT)


# Completeness


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        ([], False),
        ([chunk(ROLE)], False),
        ([chunk(ROLE), chunk({}, "stop")], True),
        ([DONE], False),
        ([event({}), DONE], False),
        ([chunk(None), USAGE_CHUNK, DONE], False),
        ([chunk(ROLE), DONE], False),
        ([chunk(ROLE), chunk({"content": "a"}), DONE], True),
        ([chunk({}, "stop"), DONE], True),
        ([USAGE_CHUNK], False),
        ([chunk(ROLE), chunk(ROLE, index=1), chunk({}, "stop")], False),
        ([chunk(ROLE), chunk(ROLE, index=1), chunk({}, "stop"), chunk({}, "stop", index=1)], True),
    ],
)
def test_a_stream_is_complete_when_every_choice_has_finished(
    events: list[bytes],
    complete: bool,  # noqa: FBT001
) -> None:
    assert fed(*events).complete is complete


def test_the_providers_id_and_finish_reason_are_recorded() -> None:
    stream = fed(STREAMS["tools"])
    assert stream.upstream_id == "chatcmpl-123"
    assert (stream.finish_reason, stream.native_finish_reason) == ("tool_calls", "tool_calls")


@pytest.mark.parametrize(
    ("delta", "tokens"),
    [
        ({"content": "abcdefgh"}, 2),
        ({"content": "abcde"}, 2),
        ({"content": "漢字漢字"}, 3),
        ({"reasoning": "abcd", "content": "abcd"}, 2),
        ({"reasoning_content": "abcd"}, 1),
        ({"refusal": "abcd"}, 1),
        ({"tool_calls": [{}, {"function": {"name": "look", "arguments": "{}  "}}]}, 2),
        ({"tool_calls": "none of it"}, 3),
        ({"tool_calls": None, "content": None}, 0),
        ({}, 0),
    ],
)
def test_tokens_are_estimated_from_the_streamed_bytes(delta: dict[str, Any], tokens: int) -> None:
    assert fed(chunk(delta)).seen.output_tokens == tokens


# Invalid events


@pytest.mark.parametrize(
    "data",
    [
        b"garbage",
        b"[]",
        b"null",
        b"{",
        b'{"choices":7}',
        b'{"choices":[7]}',
        b'{"choices":[{"delta":"a"}]}',
        b'{"choices":[{"index":"0","delta":{}}]}',
        b'{"choices":[{"index":0,"delta":{"content":7}}]}',
        b'{"choices":[{"index":0,"delta":{},"finish_reason":7}]}',
        b'{"x":' + b"[" * 100_000,
        b" [DONE]",
    ],
)
def test_an_event_that_is_not_a_chunk_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedResponse):
        new_stream().feed(data)


def test_an_error_event_is_the_providers_error() -> None:
    with pytest.raises(ErrorEvent) as caught:
        new_stream().feed(b'{"error":{"message":"Overloaded","code":529},"choices":[]}')
    assert (caught.value.code, caught.value.message) == (529, "Overloaded")


def test_an_error_chunk_describes_the_error() -> None:
    error = check_stream(new_stream().fail(CUT)).last["error"]
    assert error == {
        "code": 502,
        "message": "Acme closed the connection.",
        "metadata": {"provider_name": "Acme", "error_type": "provider_unavailable"},
    }


def test_an_error_chunk_masks_a_bug() -> None:
    error = check_stream(new_stream().fail(Bug("the secret is 42"))).last["error"]
    assert error["code"] == 500
    assert "42" not in json.dumps(error)


# Cuts


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_at_any_byte_ends_legally(name: str) -> None:
    upstream = STREAMS[name]
    for cut in range(len(upstream) + 1):
        check_stream(client_stream(upstream[:cut]))


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_in_two_chunks_is_the_same(name: str) -> None:
    upstream = STREAMS[name]
    in_one_piece = client_stream(upstream)
    for cut in [*range(0, len(upstream), 5), len(upstream) - 1]:
        assert client_stream(upstream[:cut], upstream[cut:]) == in_one_piece


@pytest.mark.parametrize("name", STREAMS)
def test_a_complete_stream_ends_with_its_usage_unless_the_provider_failed(name: str) -> None:
    assert seen(STREAMS[name]).failed == (name == "an error")


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from(sorted(STREAMS)),
    st.integers(0, 2000),
    st.integers(0, 300),
    st.binary(max_size=30),
)
def test_a_damaged_stream_ends_legally(name: str, at: int, gone: int, instead: bytes) -> None:
    upstream = STREAMS[name]
    check_stream(client_stream(upstream[:at] + instead + upstream[at + gone :]))


# Streamed and complete responses


COUNT = st.integers(0, 2_000_000)


@settings(deadline=None, max_examples=80)
@given(
    st.none()
    | st.fixed_dictionaries(
        {
            "prompt_tokens": COUNT,
            "completion_tokens": COUNT,
            "prompt_tokens_details": st.none()
            | st.fixed_dictionaries({"cached_tokens": COUNT, "cache_write_tokens": COUNT}),
            "completion_tokens_details": st.none()
            | st.fixed_dictionaries({"reasoning_tokens": COUNT}),
        }
    ),
    st.sampled_from([None, "stop", "length", "error"]),
    st.lists(st.text(max_size=5), max_size=5),
)
def test_a_streamed_response_costs_as_much_as_a_complete_one(
    usage: dict[str, Any] | None, finish_reason: str | None, words: list[str]
) -> None:
    whole = replies.whole(usage=usage, choices=[replies.choice("".join(words), finish_reason)])
    read = ChatPassthroughAdapter(REQUEST).parse_response(json.dumps(whole).encode())
    whole_charge = charge_for(
        read.reported,
        read.seen,
        PRICE,
        finish_reason=read.finish_reason,
        broken_off=False,
    )
    events = [chunk({"content": word}) for word in words]
    stream = fed(chunk(ROLE), *events, chunk({}, finish_reason), chunk(None, usage=usage), DONE)
    assert charge(stream) == whole_charge
    ended = check_stream(stream.end(charge(stream))).last["usage"]
    assert ended == json.loads(read.render(IDENTITY, whole_charge))["usage"]


def test_a_multi_line_event_stays_one_event() -> None:
    data = b'{"id":"c","choices":[{"index":0,\n"delta":{"content":"a"},\n"finish_reason":null}]}'
    stream = new_stream().feed(data)
    assert stream.count(b"\n") == 2


HIDES = [b'"reasoning":{"exclude":true}', b'"include_reasoning":false']


@pytest.mark.parametrize("hides", HIDES)
def test_excluded_reasoning_is_left_out(hides: bytes) -> None:
    request = parse_request(b'{"model":"a","messages":[{"role":"user","content":"a"}],%s}' % hides)
    delta: dict[str, Any] = {
        "content": "so",
        "reasoning": "hm",
        "reasoning_content": "hm",
        "reasoning_details": [],
    }
    chunk: dict[str, Any] = {
        "id": "c",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }
    shown = ChatStream(IDENTITY, request).feed(json.dumps(chunk).encode())
    assert json.loads(shown.removeprefix(b"data: "))["choices"][0]["delta"] == {"content": "so"}
    message: dict[str, Any] = {"role": "assistant", **delta}
    whole: dict[str, Any] = {
        "id": "c",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    response = ChatPassthroughAdapter(request).parse_response(json.dumps(whole).encode())
    assert b"hm" not in response.render(IDENTITY, charge(ChatStream(IDENTITY, request)))


def test_an_empty_finish_reason_does_not_finish_a_stream() -> None:
    stream = new_stream()
    chunk: dict[str, Any] = {
        "id": "c",
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": ""}],
    }
    shown = stream.feed(json.dumps(chunk).encode())
    assert json.loads(shown.removeprefix(b"data: "))["choices"][0]["finish_reason"] is None
    assert not stream.complete


def test_tokens_of_a_failed_stream_are_estimated_without_the_json_around_them() -> None:
    stream = new_stream()
    for _ in range(100):
        call = {"index": 0, "function": {"arguments": "ab"}}
        delta = {"tool_calls": [call], "reasoning": "cd", "reasoning_content": "cd"}
        chunk: dict[str, Any] = {
            "id": "c",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
        stream.feed(json.dumps(chunk).encode())
    assert stream.seen.output_tokens == 100
