"""What holds for every request, reply and stream, whatever is in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.seams.formats import (
    CUT,
    DIALECTS,
    IDENTITY,
    PAIRS,
    AdaptedStream,
    Bug,
    ErrorEvent,
    Invalid,
    MalformedResponse,
    adapter,
    charge,
    endpoint,
)
from tests.support.stream_checks import chat, completions, messages, responses
from tests.unit.inference.formats.corpus_files import cases, data_of

if TYPE_CHECKING:
    from random import Random

    from tests.unit.inference.formats.corpus_files import Case

REPLIES, STREAMS = cases("replies"), cases("streams")
PLAIN_REPLIES = {name: case for name, case in REPLIES.items() if name.endswith(": plain")}
CHECKS = {"chat": chat, "completions": completions, "messages": messages, "responses": responses}
ASKED: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "hello"}]},
    "responses": {"input": "hello"},
    "messages": {"messages": [{"role": "user", "content": "hello"}]},
    "completions": {"prompt": "hello"},
    "embeddings": {"input": "hello"},
}
DEEP = b"[" * 100_000 + b"]" * 100_000
OPENING = {
    "chat": b'{"choices":[],"x":%s}',
    "messages": b'{"type":"ping","x":%s}',
    "responses": b'{"type":"x","x":%s}',
    "completions": b'{"choices":[],"x":%s}',
}
STREAMED = [(client, dialect) for client, dialect in PAIRS if client != "embeddings"]


def asked(client: str, **fields: Any) -> bytes:
    return data_of({"model": "acme/large", **ASKED[client], **fields})


def opened(client: str, dialect: str, **fields: Any) -> AdaptedStream:
    return adapter(client, dialect, asked(client, **fields)).open_stream(IDENTITY)


def relayed(stream: AdaptedStream, events: list[bytes], *, cut: bool = False) -> bytes:
    """Return a client's whole stream of a provider's events."""
    out: list[bytes] = []
    try:
        for data in events:
            out.append(stream.feed(data))  # noqa: PERF401 - what was shown before a failure counts
    except (ErrorEvent, MalformedResponse):
        return b"".join([*out, stream.fail(CUT)])
    if not stream.done and (cut or not stream.complete):
        return b"".join([*out, stream.fail(CUT)])
    return b"".join([*out, stream.end(charge(stream))])


# Streams


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_cut_after_any_event_is_legal_and_failed(name: str) -> None:
    case = STREAMS[name]
    events = case.events()
    for cut in range(len(events) + 1):
        stream = adapter(case.client, case.dialect, case.encoded("ask")).open_stream(IDENTITY)
        written = relayed(stream, events[:cut], cut=True)
        CHECKS[case.client].check_stream(written)
        assert stream.done or b'"error":{' in written


@pytest.mark.parametrize(("client", "dialect"), STREAMED)
def test_a_text_is_shown_with_the_event_that_says_it(client: str, dialect: str) -> None:
    stream = opened(client, dialect)
    shown = {data: stream.feed(data) for data in plain_stream(dialect)}
    first = next(data for data in shown if b'"Hel' in data)
    assert b'"Hel' in shown[first]


def plain_stream(dialect: str) -> list[bytes]:
    (plain, *_) = [case for case in STREAMS.values() if case.dialect == dialect and not case.row]
    return plain.events()


def known_events(dialect: str) -> list[bytes]:
    """Return every event that is in the corpus for a dialect."""
    found = [data for case in STREAMS.values() if case.dialect == dialect for data in case.events()]
    return sorted(set(found))


EVENTS = {dialect: known_events(dialect) for dialect in OPENING}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(STREAMED), st.data())
def test_any_sequence_of_events_gives_a_legal_stream(
    pair: tuple[str, str], data: st.DataObject
) -> None:
    client, dialect = pair
    spoiled = st.binary(max_size=12)
    events = data.draw(st.lists(st.sampled_from(EVENTS[dialect]) | spoiled, max_size=9))
    written = relayed(opened(client, dialect), events)
    if pair == ("responses", "responses"):
        return _check_ends(written)
    CHECKS[client].check_stream(written)
    return None


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_a_damaged_stream_gives_a_legal_one(name: str, data: st.DataObject) -> None:
    case = STREAMS[name]
    events = list(case.events())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(events) - 1)))
        other = data.draw(st.sampled_from(EVENTS[case.dialect]))
        twice, without = [*events[: at + 1], *events[at:]], [*events[:at], *events[at + 1 :]]
        replaced = [*events[:at], other, *events[at + 1 :]]
        events = data.draw(st.sampled_from([twice, without, replaced]))
    stream = adapter(case.client, case.dialect, case.encoded("ask")).open_stream(IDENTITY)
    written = relayed(stream, events)
    if case.client == case.dialect == "responses":
        return _check_ends(written)
    CHECKS[case.client].check_stream(written)
    return None


def _check_ends(stream: bytes) -> None:
    """Check the beginning and the end; between them a response's events are the provider's."""
    frames = stream.split(b"\n\n")
    kinds = [json.loads(frame.split(b"data: ")[1])["type"] for frame in frames[:-2]]
    assert kinds[0] == "response.created"
    assert frames[-2:] == [b"data: [DONE]", b""]
    ends = [kind for kind in kinds if kind in responses.TERMINAL]
    assert ends == [kinds[-1]]


@pytest.mark.parametrize(("client", "dialect"), STREAMED)
def test_a_stream_ends_once(client: str, dialect: str) -> None:
    stream = opened(client, dialect)
    relayed(stream, plain_stream(dialect))
    with pytest.raises(Bug, match="was ended twice"):
        stream.end(charge(stream))
    with pytest.raises(Bug, match="was ended twice"):
        stream.fail(CUT)


def test_embeddings_are_not_streamed() -> None:
    with pytest.raises(Bug):
        opened("embeddings", "embeddings")


@pytest.mark.parametrize("client", ["responses", "messages"])
def test_a_request_of_several_lines_gives_events_of_one(client: str) -> None:
    fields = {"stream": True, "metadata": {"a": "b"}}
    body = json.dumps({"model": "m", **ASKED[client], **fields}, indent=2).replace("\n", "\r\n")
    written = adapter(client, client, body.encode()).open_stream(IDENTITY).fail(CUT)
    assert b"\r" not in written
    assert all(line.startswith((b"event: ", b"data: ")) for line in written.split(b"\n") if line)


# Calls whose pieces come in any order

objects = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2)


def piece(call: int, **fields: Any) -> bytes:
    delta = {"tool_calls": [{"index": call, **fields}]}
    return data_of({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def arguments(call: int, text: str) -> bytes:
    return piece(call, function={"arguments": text})


def begun(call: int) -> bytes:
    return piece(call, id=f"call_{call}", function={"name": "look", "arguments": ""})


@given(st.lists(objects, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_calls_with_interleaved_pieces_are_sent_completely(
    made: list[dict[str, Any]], random: Random
) -> None:
    runs = [
        iter([begun(number), *(arguments(number, each) for each in json.dumps(value))])
        for number, value in enumerate(made)
    ]
    owners = [
        number for number, value in enumerate(made) for _ in range(len(json.dumps(value)) + 1)
    ]
    random.shuffle(owners)
    end = data_of({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    events = [*(next(runs[owner]) for owner in owners), end]
    seen = messages.check_stream(relayed(opened("messages", "chat"), events))
    sent = {
        block["id"]: json.loads(text.get("partial_json") or "{}")
        for block, text in zip(seen.blocks, seen.texts, strict=True)
    }
    assert sent == {f"call_{number}": value for number, value in enumerate(made)}


pieces = st.sampled_from(["{", "}", "[", "]", '"', "\\", '\\"', '"a":', "1", ",", " ", "\xa0", "x"])


@given(st.lists(pieces | st.sampled_from(['{"a":"{', '\\\\"}', '{"a":{"b":[1]}}']), max_size=12))
@example(['{"a":"\\', '"', '}"', "}"])
@example(["{", "}", " ", "x", "{}"])
def test_a_call_ends_as_soon_as_its_arguments_are_an_object_and_another_waits(
    given_pieces: list[str],
) -> None:
    """The next call is shown without waiting for the end of the reply.

    A piece that begins as the arguments do may say all of them; `calls.yaml` has those.
    """
    stream, text = opened("messages", "chat"), ""
    for event in (begun(0), begun(1)):
        stream.feed(event)
    for each in given_pieces:
        if text and each.startswith("{"):
            break
        shown = stream.feed(arguments(0, each)) + stream.feed(arguments(1, "1"))
        text += each
        ended = b"content_block_stop" in shown
        assert ended == _is_object(text)
        if ended:
            break


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


# Replies


@pytest.mark.parametrize("name", PLAIN_REPLIES)
def test_a_reply_that_is_cut_at_any_byte_is_malformed(name: str) -> None:
    case = PLAIN_REPLIES[name]
    body = case.encoded("reply")
    for cut in range(len(body)):
        with pytest.raises(MalformedResponse):
            reading(case, body[:cut])


def reading(case: Case, body: bytes) -> Any:
    return adapter(case.client, case.dialect, case.encoded("ask")).parse_response(body)


@pytest.mark.parametrize("name", PLAIN_REPLIES)
def test_a_reply_that_is_nested_too_deep_is_malformed(name: str) -> None:
    case = PLAIN_REPLIES[name]
    for field in case.plain["reply"]:
        body = data_of({**case.plain["reply"], field: "@"}).replace(b'"@"', DEEP)
        with pytest.raises(MalformedResponse):
            reading(case, body)


@pytest.mark.parametrize(("client", "dialect"), STREAMED)
def test_an_event_that_is_nested_too_deep_is_malformed(client: str, dialect: str) -> None:
    with pytest.raises(MalformedResponse):
        opened(client, dialect).feed(OPENING[dialect] % DEEP)


COUNT = st.integers(0, 2_000_000)
SOME = st.integers(1, 2_000_000)  # of no output beside a text the charge itself knows what to think


@settings(deadline=None, max_examples=80)
@given(
    st.none()
    | st.fixed_dictionaries(
        {
            "prompt_tokens": COUNT,
            "completion_tokens": SOME,
            "prompt_tokens_details": st.none()
            | st.fixed_dictionaries({"cached_tokens": COUNT, "cache_write_tokens": COUNT}),
            "completion_tokens_details": st.none()
            | st.fixed_dictionaries({"reasoning_tokens": COUNT}),
        }
    ),
    st.sampled_from(
        [("chat", None), *((client, "stop") for client in ASKED if client != "embeddings")]
        + [(client, reason) for client in ("chat", "messages") for reason in ("length", "error")]
    ),
    st.lists(st.text(max_size=5), max_size=5),
)
def test_a_streamed_reply_costs_as_much_as_a_whole_one(
    usage: dict[str, Any] | None, ends: tuple[str, str | None], words: list[str]
) -> None:
    client, finish = ends
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = data_of({"id": "c", "choices": [choice], "usage": usage})
    whole = adapter(client, "chat", asked(client)).parse_response(body)
    stream = opened(client, "chat")
    deltas = [{"content": word} for word in words]
    for delta, end in [*((delta, None) for delta in deltas), ({}, finish)]:
        said = {"index": 0, "delta": delta, "finish_reason": end}
        stream.feed(data_of({"choices": [said]}))
    stream.feed(data_of({"choices": [], "usage": usage}))
    stream.feed(b"[DONE]")
    assert charge(stream) == charge(whole)


floats32 = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20)


@given(floats32)
def test_a_vector_survives_its_encoding(vector: list[float]) -> None:
    def read(given_vector: Any, **fields: Any) -> Any:
        body = data_of({"data": [{"embedding": given_vector}]})
        translated = adapter("embeddings", "embeddings", asked("embeddings", **fields))
        whole = translated.parse_response(body)
        return json.loads(whole.render(IDENTITY, charge(whole)))["data"][0]["embedding"]

    assert read(read(vector, encoding_format="base64")) == vector


# Requests

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda each: (
        st.lists(each, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "role", "text", "source", "content", "data", "input", "name"]),
            each | st.sampled_from(["text", "image", "tool_use", "document", "reasoning", "user"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)
FIELDS = {
    "chat": ["messages", "tools", "tool_choice", "response_format", "reasoning", "stop", "x"],
    "responses": ["input", "instructions", "tools", "tool_choice", "text", "reasoning", "metadata"],
    "messages": ["messages", "system", "tools", "tool_choice", "thinking", "output_config", "x"],
    "completions": ["prompt", "stop", "max_tokens", "n", "x"],
}


@settings(max_examples=200)
@given(st.sampled_from(sorted(FIELDS)), st.data())
def test_any_json_is_parsed_or_refused_with_a_path(client: str, data: st.DataObject) -> None:
    fields = data.draw(st.dictionaries(st.sampled_from(FIELDS[client]), json_values, max_size=3))
    body = asked(client, **fields)
    dialect = "messages" if client == "chat" else "chat"
    try:
        adapter(client, dialect, body).unsupported_parameters(endpoint())
    except Invalid as error:
        assert re.split(r"[.\[:{]", error.message)[0] in fields  # noqa: PT017 - either is right


KEPT = st.text(max_size=8).filter(lambda name: not re.match(r"[a-z_]{3}", name))


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(KEPT, json_values, max_size=5), st.booleans())
def test_unknown_fields_are_forwarded_unchanged(unknown: dict[str, Any], ascii_: bool) -> None:  # noqa: FBT001
    values = {name: json.dumps(value, ensure_ascii=ascii_) for name, value in unknown.items()}
    inner = "".join(f",{json.dumps(name)}:{value}" for name, value in values.items())
    body = f'{{"model":"a","messages":[1]{inner}}}'.encode()
    sent = adapter("chat", "chat", body).render_request(endpoint())
    assert json.loads(sent) == {**json.loads(body), "model": "large-2026"}
    assert [value for value in values.values() if f":{value}".encode() not in sent] == []


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize("closed", [True, False])
def test_a_request_that_is_nested_too_deep_is_refused(client: str, *, closed: bool) -> None:
    for field in ("model", *ASKED[client], "stream", "tools", "x"):
        body = data_of({"model": "a", **ASKED[client], field: "@"})
        deep = DEEP if closed else DEEP[:100_000]
        with pytest.raises(Invalid, match="nested too deeply"):
            adapter(client, client, body.replace(b'"@"', deep))
