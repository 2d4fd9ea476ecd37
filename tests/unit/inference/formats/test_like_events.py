"""An event that is like the one before it is read by its differences: it must show the same."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.formats import Asked
from tests.support.seams.inference import (
    FORMATS,
    AdaptedStream,
    Dialect,
    ErrorEvent,
    MalformedResponse,
    ReplyIdentity,
)

IDENTITY = ReplyIdentity(id="gen-1", model="acme/large", provider="Acme", created=1700000000)
MESSAGES = [{"role": "user", "content": "hello"}]

# Of four times so many bytes: estimated tokens, of four bytes each, add up.
texts = (
    st.text(max_size=9)
    | st.sampled_from(['}}]},"', "%b", "null", "\u2028", '"delta":{"', '"content":'])
).map(lambda text: text * 4)
encodings = st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (",\r\n", ": ")])


def open_stream(path: str, **options: Any) -> AdaptedStream:
    request = {"model": "acme/large", "messages": MESSAGES, "max_tokens": 9, **options}
    adapters = FORMATS[path].parse(json.dumps(request).encode(), {}, b"")
    return adapters.passthrough.open_stream(IDENTITY)


def outcome(stream: AdaptedStream, data: bytes) -> bytes | str:
    try:
        return stream.feed(data)
    except (MalformedResponse, ErrorEvent) as error:
        return repr(error)


def spoil(data: bytes, at: int, byte: int) -> bytes:
    """Return an event with one byte in the place of another, where `at` is within it."""
    return data[:at] + bytes([byte]) + data[at + 1 :] if at < len(data) else data


positions = st.tuples(st.integers(0, 250), st.integers(0, 255))
spoiled: st.SearchStrategy[tuple[int, int] | None] = st.sampled_from(range(40)).flatmap(
    lambda number: st.none() if number else positions
)


# Chat: every chunk can be shown alone, which takes the general way

odd_deltas: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"content": texts, "role": st.just("assistant")}),
    st.fixed_dictionaries({"tool_calls": st.just([])}),  # others depend on the calls before them
    st.fixed_dictionaries({"reasoning_content": texts}),
    st.fixed_dictionaries({"content": texts, "reasoning": texts}),
    st.fixed_dictionaries({"content": st.none(), "x": st.dictionaries(texts, texts)}),
    st.fixed_dictionaries({"content": st.integers()}),
    st.none(),
)
chat_deltas = st.booleans().flatmap(
    lambda odd: odd_deltas if odd else st.fixed_dictionaries({"content": texts})
)
usual_chunk: dict[str, Any] = {
    "id": "c",
    "system_fingerprint": "fp_1",
    "choices": [{"index": 0, "delta": None, "logprobs": None, "finish_reason": None}],
    "usage": None,
    "obfuscation": "",
}
odd_fields: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *[{}] * 20,
        {"system_fingerprint": "fp_2"},
        {"system_fingerprint": None},
        {"obfuscation": None},
        {"obfuscation": [1, {"delta": 1}]},
        {"usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"error": {"message": "no"}},
    ]
)
odd_choices: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [*[{}] * 20, {"index": 1}, {"index": None}, {"finish_reason": "length"}, {"finish_reason": ""}]
)


@st.composite
def chunks(draw: st.DrawFn) -> dict[str, Any]:
    """Return a chunk: most differ in their deltas and their obfuscation alone."""
    choice = usual_chunk["choices"][0] | {"delta": draw(chat_deltas)} | draw(odd_choices)
    varying = {"choices": [choice], "obfuscation": draw(st.text(max_size=9))}
    return usual_chunk | varying | draw(odd_fields)


@given(
    st.lists(st.tuples(chunks(), spoiled), min_size=4, max_size=12),
    encodings,
    st.booleans(),
    st.booleans(),
)
def test_a_chat_chunk_among_others_is_shown_as_it_is_alone(
    sent: list[tuple[Any, tuple[int, int] | None]],
    separators: tuple[str, str],
    ascii_: bool,  # noqa: FBT001 - drawn
    hides: bool,  # noqa: FBT001 - drawn
) -> None:
    path, options = "/chat/completions", {"reasoning": {"exclude": hides}}
    stream, tokens = open_stream(path, **options), 0
    for chunk, change in sent:
        data = json.dumps(chunk, separators=separators, ensure_ascii=ascii_).encode()
        data = data if change is None else spoil(data, *change)
        alone = open_stream(path, **options)
        shown = outcome(alone, data)
        assert outcome(stream, data) == shown
        if isinstance(shown, str):
            return
        tokens += alone.seen.output_tokens
    if not any(change for _, change in sent):
        assert stream.seen.output_tokens == tokens


# Messages: a block's deltas differ in their text alone


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["text", "thinking", "new"]),
            texts,
            st.sampled_from([0] * 20 + [1]),
            spoiled,
        ),
        min_size=3,
        max_size=9,
    ),
    encodings,
)
def test_a_delta_of_a_message_is_shown_as_the_first_of_its_block(
    sent: list[tuple[str, str, int, tuple[int, int] | None]], separators: tuple[str, str]
) -> None:
    def begun() -> AdaptedStream:
        stream = open_stream("/messages")
        block = {"type": "text", "text": ""}
        stream.feed(b'{"type":"message_start","message":{"id":"m","content":[]}}')
        start = {"type": "content_block_start", "index": 0, "content_block": block}
        stream.feed(json.dumps(start).encode())
        return stream

    stream, tokens = begun(), 0
    for kind, text, index, change in sent:
        delta = {"type": f"{kind}_delta", kind: text}
        event = {"type": "content_block_delta", "index": index, "delta": delta}
        data = json.dumps(event, separators=separators).encode()
        data = data if change is None else spoil(data, *change)
        alone = begun()
        shown = outcome(alone, data)
        assert outcome(stream, data) == shown
        if isinstance(shown, str) or shown.count(b"event: ") != 1:
            return
        tokens += alone.seen.output_tokens
    if not any(change for *_, change in sent):
        assert stream.seen.output_tokens == tokens


# Responses: as messages, and every event has the next number

usual_delta: dict[str, Any] = {
    "type": "response.output_text.delta",
    "sequence_number": 0,
    "item_id": "m",
    "output_index": 0,
    "content_index": 0,
    "delta": "",
    "obfuscation": "",
}
odd_deltas_of_text: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        *[{}] * 20,
        {"content_index": 1},
        {"delta": 1},
        {"delta": None},
        {"sequence_number": "x"},
        {"sequence_number": 1.5},
        {"obfuscation": None},
        {"logprobs": [{"delta": 1}]},
        {"response": {"id": "r"}},
        {"type": "response.refusal.delta"},
    ]
)


@given(
    st.lists(
        st.tuples(texts, st.integers(0), st.text(max_size=9), odd_deltas_of_text, spoiled),
        min_size=3,
        max_size=9,
    ),
    encodings,
    st.sets(st.sampled_from(["sequence_number", "obfuscation"])),
)
def test_a_delta_of_a_response_is_shown_as_the_first_of_its_part(
    sent: list[tuple[str, int, str, dict[str, Any], tuple[int, int] | None]],
    separators: tuple[str, str],
    left_out: set[str],
) -> None:
    def begun(number: int) -> AdaptedStream:
        """Return a stream within a part of its text, whose next event has a number."""
        stream = open_stream("/responses", input="hello")
        item: dict[str, Any] = {"id": "m", "type": "message", "content": []}
        opening: list[dict[str, Any]] = [
            {"type": "response.created", "response": {"id": "r"}},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.content_part.added", "output_index": 0, "content_index": 0},
            *[{"type": "response.queued"}] * number,
        ]
        for event in opening:
            stream.feed(json.dumps(event).encode())
        return stream

    stream, tokens = begun(0), 0
    for count, (text, number, obfuscation, odd, change) in enumerate(sent):
        varying = {"delta": text, "sequence_number": number, "obfuscation": obfuscation}
        fields = usual_delta | varying | odd
        event = {name: value for name, value in fields.items() if name not in left_out}
        data = json.dumps(event, separators=separators).encode()
        data = data if change is None else spoil(data, *change)
        alone = begun(count)
        shown = outcome(alone, data)
        assert outcome(stream, data) == shown
        if isinstance(shown, str) or shown.count(b"event: ") != 1:
            return
        tokens += alone.seen.output_tokens
    if not any(odd or change for *_, odd, change in sent):
        assert stream.seen.output_tokens == tokens


# Translations: a delta of text differs from the one before in its text and its number


def chat_chunk(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


def message_delta(text: str) -> dict[str, Any]:
    delta = {"type": "text_delta", "text": text}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


MESSAGE_BEGINS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "content": []}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text"}},
]


def with_text(client: str, event: dict[str, Any], text: str, number: int) -> dict[str, Any]:
    """Return a client's event with another text, and with another number if it has one."""
    if client == "/responses":
        return event | {"delta": text, "sequence_number": event["sequence_number"] + number}
    if client == "/messages":
        return event | {"delta": event["delta"] | {"text": text}}
    return event | {"choices": [event["choices"][0] | {"delta": {"content": text}}]}


@given(
    st.sampled_from(["/chat/completions", "/messages", "/responses"]),
    st.lists(texts.filter(bool), min_size=3, max_size=6),
)
def test_a_delta_of_a_translated_text_is_written_as_the_one_before(
    client: str, said: list[str]
) -> None:
    own = client == "/chat/completions"
    asked = {"model": "acme/large", "messages": MESSAGES, "input": "hello", "max_tokens": 9}
    dialect = Dialect.MESSAGES if own else Dialect.CHAT
    stream = Asked(client, dialect, json.dumps(asked).encode()).open_stream(IDENTITY)
    for event in MESSAGE_BEGINS if own else []:
        stream.feed(json.dumps(event).encode())
    given_events = [message_delta(text) if own else chat_chunk(text) for text in said]
    shown = [stream.feed(json.dumps(event).encode()) for event in given_events]
    head, _, second = shown[1].rpartition(b"data: ")
    first_like = json.loads(second)
    for number, text in enumerate(said[1:]):
        like = msgspec.json.encode(with_text(client, first_like, text, number))
        assert shown[1 + number] == head + b"data: " + like + b"\n\n"
