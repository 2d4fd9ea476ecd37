"""A reply that is not whole is never taken for one, whatever its format."""

import msgspec
import pytest

from bench.formats import (
    ANSWER,
    ANSWERS,
    CHUNKS,
    COST,
    FORMATS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    PIECES,
    STAMP,
    Format,
    Truncated,
    chat_reply,
    read_events,
    stamps,
)

DONE = b"data: [DONE]"
every_format = pytest.mark.parametrize("name", FORMATS)
every_answer = pytest.mark.parametrize("path", ANSWERS)


# ------------------------------------------------------------------------------------- replies


def response(text: str, cost: float | None = None) -> dict[str, object]:
    """Return a whole response, which no provider of the measurements says."""
    content = [{"type": "output_text", "text": text}]
    usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "cost": cost}
    message = {"type": "message", "role": "assistant", "content": content}
    return {"object": "response", "status": "completed", "output": [message], "usage": usage}


def response_stream() -> bytes:
    text = "".join(PIECES)
    said: list[tuple[str, dict[str, object]]] = [
        ("created", {}),
        ("in_progress", {}),
        ("output_item.added", {}),
        ("content_part.added", {}),
        *(("output_text.delta", {"delta": piece}) for piece in PIECES),
        ("output_text.done", {"text": text}),
        ("content_part.done", {}),
        ("output_item.done", {}),
        ("completed", {"response": response(text)}),
    ]
    events: list[bytes] = []
    for number, (kind, fields) in enumerate(said):
        data = {"type": f"response.{kind}", "sequence_number": number} | fields
        events.append(b"event: response.%b\ndata: " % kind.encode() + msgspec.json.encode(data))
    return b"\n\n".join([*events, DONE, b""])


def whole(name: str) -> bytes:
    path = FORMATS[name].path
    return ANSWERS[path].whole if path in ANSWERS else msgspec.json.encode(response(ANSWER))


def stream(name: str) -> bytes:
    path = FORMATS[name].path
    return b"".join(ANSWERS[path].pieces) if path in ANSWERS else response_stream()


def refuses_stream(spoken: Format, body: bytes) -> None:
    with pytest.raises(Truncated):
        spoken.check(body, stream=True, priced=False)


# -------------------------------------------------------------------------------------- checks


@every_format
def test_a_request_has_2_kb(name: str) -> None:
    for streamed in (False, True):
        body = FORMATS[name].request("a/model", stream=streamed)
        assert 1_900 < len(body) < 2_200
        assert (b'"stream":true' in body) is streamed


@every_answer
def test_an_answer_has_1_kb_or_a_write_for_each_piece(path: str) -> None:
    assert 850 < len(ANSWERS[path].whole) < 1_100
    pieces = ANSWERS[path].pieces
    assert len(pieces) == CHUNKS
    assert all(text.encode() in piece for text, piece in zip(PIECES, pieces, strict=True))


@every_format
def test_a_reply_that_is_whole_is_accepted(name: str) -> None:
    FORMATS[name].check(whole(name), stream=False, priced=False)
    FORMATS[name].check(stream(name), stream=True, priced=False)


@every_format
def test_a_cut_reply_is_found_wherever_it_is_cut(name: str) -> None:
    body = whole(name)
    for end in range(0, len(body), 7):
        with pytest.raises(Truncated):
            FORMATS[name].check(body[:end], stream=False, priced=False)


@every_format
def test_a_cut_stream_is_found_wherever_it_is_cut(name: str) -> None:
    body = stream(name)
    for end in (*range(0, len(body), 997), len(body) - 1):
        refuses_stream(FORMATS[name], body[:end])


@every_format
def test_a_stream_that_lacks_an_event_is_found(name: str) -> None:
    events = stream(name).split(b"\n\n")[:-1]
    for number, event in enumerate(events):
        if event.startswith(b"event: ping"):
            continue
        rest = [*events[:number], *events[number + 1 :], b""]
        refuses_stream(FORMATS[name], b"\n\n".join(rest))


@every_format
def test_a_stream_with_repeated_content_is_found(name: str) -> None:
    for event in (PIECES[0], PIECES[-1]):
        events = stream(name).split(b"\n\n")
        at = next(number for number, said in enumerate(events) if event.encode() in said)
        refuses_stream(FORMATS[name], b"\n\n".join([*events[:at], events[at], *events[at:]]))


@every_format
def test_a_gateway_has_to_say_the_cost(name: str) -> None:
    with pytest.raises(Truncated, match="cost"):
        FORMATS[name].check(whole(name), stream=False, priced=True)
    with pytest.raises(Truncated, match="cost"):
        FORMATS[name].check(stream(name), stream=True, priced=True)


@every_format
@pytest.mark.parametrize("cost", [COST, COST / 2])
def test_only_the_right_cost_is_accepted(name: str, cost: float) -> None:
    reply = msgspec.json.decode(whole(name))
    reply["usage"]["cost"] = cost
    body = msgspec.json.encode(reply)
    if cost == COST:
        FORMATS[name].check(body, stream=False, priced=True)
        return
    with pytest.raises(Truncated, match="cost"):
        FORMATS[name].check(body, stream=False, priced=True)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("chat", b'"finish_reason":"stop"', b'"finish_reason":"length"'),
        ("messages", b'"stop_reason":"end_turn"', b'"stop_reason":"max_tokens"'),
        ("responses", b'"status":"completed"', b'"status":"incomplete"'),
    ],
)
def test_a_wrong_finish_reason_is_found(name: str, right: bytes, wrong: bytes) -> None:
    assert right in whole(name)
    with pytest.raises(Truncated):
        FORMATS[name].check(whole(name).replace(right, wrong), stream=False, priced=False)
    refuses_stream(FORMATS[name], stream(name).replace(right, wrong))


@pytest.mark.parametrize("name", ["messages", "responses"])
def test_an_event_whose_name_is_not_its_type_is_found(name: str) -> None:
    events = stream(name).split(b"\n\n")
    events[0] = events[0].replace(b"event: ", b"event: not_", 1)
    refuses_stream(FORMATS[name], b"\n\n".join(events))


def test_each_chunk_of_chat_says_when_it_was_written() -> None:
    pieces = ANSWERS[FORMATS["chat"].path].pieces
    assert stamps(b"".join(pieces).replace(STAMP, b"%019d" % 42)) == [42] * (CHUNKS + 1)
    assert stamps(chat_reply()) == [0]


def test_events_are_read_without_comments() -> None:
    body = b': waiting\n\nevent: ping\ndata: {}\n\ndata: {"a":1}\n\n'
    assert read_events(body) == [("ping", {}), ("", {"a": 1})]


@every_format
def test_the_tokens_have_to_be_the_upstreams(name: str) -> None:
    body = whole(name).replace(str(INPUT_TOKENS).encode(), str(INPUT_TOKENS + 1).encode())
    with pytest.raises(Truncated, match="usage"):
        FORMATS[name].check(body, stream=False, priced=False)
